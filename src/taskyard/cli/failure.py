"""Why a command failed, with the exit code for scripts."""

from taskyard.shared.exit_codes import REFUSED


class CommandFailed(Exception):
    """The text is one sentence that says what to do."""

    def __init__(self, sentence: str, code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.code = code
