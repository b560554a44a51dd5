"""What names are refused with, as it stands on the wire."""

NAME_RULE = "must be 1 to 255 bytes of UTF-8 without spaces and control characters"
BAD_QUEUE = f"ERR invalid queue name: it {NAME_RULE}"  # of RESP
