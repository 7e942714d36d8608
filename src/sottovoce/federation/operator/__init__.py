"""The operator of the message server: its configuration, and the mailboxes of a run before any site starts."""
