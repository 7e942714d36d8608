"""Attacks on a claim of epsilon, and the lower bounds on epsilon that they show.

views      what an observer sees of a run
worlds     two worlds that differ in one row, run many times by the engine
pairs      the two rows that can be told apart best
scores     the optimal weights of all that is seen
bounds     from scores to a lower bound on epsilon
replay     the noise of every round, solved for
wire       the same of real sites' messages
audit      all of it, in one call
subjects   settings under which a claim is nearly attained
releases   the same attack on what one process releases
catalogue  all of these releases, each with two tables that move its sums the most
table      audits side by side
"""
