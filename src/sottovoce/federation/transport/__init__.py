"""Messages between sites: their form, the mailboxes of an untrusted server, and the connection to it."""
