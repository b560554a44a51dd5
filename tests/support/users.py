"""Users for tests: their passwords are checked at once, as no real ones should be."""

from taskyard.access.principal import Rule
from taskyard.access.users import Cost, User, Users, hash_password, token_digest

CHEAP = Cost(2, 1, 1)


def user(
    name: str,
    password: str = "",
    *,
    tokens: tuple[str, ...] = (),
    certificate: str = "",
    admin: bool = False,
    rules: tuple[tuple[str, str], ...] = (),
) -> User:
    """Rules are pairs of texts: patterns and actions, separated by commas."""
    return User(
        name,
        hash_password(password, CHEAP) if password else None,
        [token_digest(token) for token in tokens],
        certificate,
        admin,
        rules_of(*rules),
    )


def rules_of(*rules: tuple[str, str]) -> list[Rule]:
    return [Rule(queues.split(","), actions.split(",")) for queues, actions in rules]


def users_of(*users: User, anonymous: tuple[tuple[str, str], ...] = ()) -> Users:
    return Users({user.name: user for user in users}, rules_of(*anonymous))
