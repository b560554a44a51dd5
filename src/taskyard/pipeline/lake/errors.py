"""What can be wrong with a lake; each says what to do."""


class LakeError(Exception):
    """The text is one sentence or two for whoever runs the lake."""
