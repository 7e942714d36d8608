# Every public name, once: lazy_loader imports it from here when it is first asked for, and type checkers see it.

from . import algorithms as algorithms
from . import estimators as estimators
from . import plan as plan
from . import privacy as privacy
from . import tables as tables
from . import tally as tally
from .algorithms import ADMM as ADMM
from .algorithms import DPADMM as DPADMM
from .algorithms import DPDSGD as DPDSGD
from .algorithms import DVP as DVP
from .algorithms import IPADMM as IPADMM
from .algorithms import MADMM as MADMM
from .algorithms import PVP as PVP
from .algorithms import RADMM as RADMM
from .algorithms import FixedPoint as FixedPoint
from .algorithms import MaskedNewton as MaskedNewton
from .algorithms import NoisyAveragedGD as NoisyAveragedGD
from .algorithms import RyuKim as RyuKim
from .algorithms import TrustedCurator as TrustedCurator
from .algorithms import utility_bound as utility_bound
from .auditing.audit import Audit as Audit
from .auditing.audit import audit as audit
from .errors import BudgetError as BudgetError
from .errors import InputError as InputError
from .errors import PrivacyError as PrivacyError
from .errors import PrivacyLeakWarning as PrivacyLeakWarning
from .errors import SottovoceError as SottovoceError
from .errors import UnsupportedError as UnsupportedError
from .files import datasets as datasets
from .files import models as models
from .files import schema as schema
from .problem import graphs as graphs
from .problem import losses as losses
from .problem import regularisers as regularisers
from .problem.factors import Factors as Factors
from .problem.sites import Sites as Sites
from .simulation.engine import Result as Result
from .simulation.engine import simulate as simulate
from .tables.release import cross_table as cross_table
from .tables.release import describe as describe
from .tables.release import survival as survival

__version__: str
__all__: list[str]
