"""What tests of several folders share. A helper that one folder needs lies in that folder."""
