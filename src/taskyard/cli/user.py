"""`taskyard user`: adds, changes, lists and removes users in the file that the server reads."""

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from taskyard.access.principal import ACTIONS, Rule
from taskyard.access.users import (
    User,
    Users,
    UsersError,
    check_name,
    hash_password,
    is_accessible_to_others,
    load_users,
    make_rule,
    new_token,
    save_users,
    token_digest,
)
from taskyard.cli.main import CommandParser, ExamplesFormatter


class UserChangeRefused(Exception):
    """It cannot be done; the text says why."""


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (UserChangeRefused, UsersError) as error:
        print(f"taskyard user: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"taskyard user: {arguments.users}: {error.strerror}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def parser() -> CommandParser:
    result = CommandParser(
        prog="taskyard user",
        description="Change the file of users. It is written as a whole: comments in it are not "
        "kept. A server that runs takes it up when it gets SIGHUP.",
        epilog="examples:\n  taskyard user add ada --users users.toml --admin\n"
        "  taskyard user add worker --users users.toml --queues 'mail*' --allow push,fetch --token",
        formatter_class=ExamplesFormatter,
        allow_abbrev=False,
    )
    commands = result.add_subparsers(metavar="COMMAND", required=True, dest="command")

    def make(name: str, run: Callable[[argparse.Namespace], None], doc: str) -> Any:
        command = commands.add_parser(name, help=doc, description=doc, allow_abbrev=False)
        file = os.environ.get("TASKYARD_USERS")
        command.add_argument(
            "--users",
            type=Path,
            metavar="FILE",
            required=not file,
            default=Path(file) if file else None,
            help="the file of users (default: what TASKYARD_USERS says)",
        )
        if name != "list":
            command.add_argument("name", metavar="NAME")
        command.set_defaults(run=run)
        return command

    adding = make("add", add, "add a user; the password is asked for, or one line of the input")
    adding.add_argument(
        "--queues", nargs="+", metavar="PATTERN", help="queues, where * stands for any characters"
    )
    adding.add_argument(
        "--allow", metavar="ACTION,...", help=f"what is allowed there, of {', '.join(ACTIONS)}"
    )
    adding.add_argument("--admin", action="store_true", help="everything is allowed")
    adding.add_argument("--certificate", metavar="NAME", help="common name of a certificate")
    adding.add_argument(
        "--token", action="store_true", help="make a token, and ask for no password"
    )
    make("remove", remove, "remove a user")
    make("list", show, "list the users, with nothing secret")
    make("password", change_password, "give a user another password")
    tokens = make("token", add_token, "make a token for a user, and print it this once")
    tokens.add_argument("--replace", action="store_true", help="the tokens there were end")
    return result


# Commands


def add(arguments: argparse.Namespace) -> None:
    users = _load(arguments.users) if arguments.users.exists() else Users()
    name: str = arguments.name
    try:
        check_name(name)
        rules = _rules(arguments)
    except ValueError as error:
        raise UserChangeRefused(f"{error}.") from None
    if name in users.users:
        raise UserChangeRefused(f"there is a user {name} already.")
    user = User(name, certificate=arguments.certificate or "", admin=arguments.admin, rules=rules)
    if any(user.certificate and user.certificate == each.certificate for each in _all(users)):
        raise UserChangeRefused("another user has this certificate.")
    token = ""
    if arguments.token:
        token = _add_token(user)
    else:
        _set_password(user)
    users.users[name] = user
    save_users(arguments.users, users)
    if token:
        print(token)


def remove(arguments: argparse.Namespace) -> None:
    users = _load(arguments.users)
    del users.users[_find(users, arguments.name).name]
    save_users(arguments.users, users)


def show(arguments: argparse.Namespace) -> None:
    users = _load(arguments.users)
    for user in _all(users):
        told = [user.name]
        if user.password is not None:
            told.append("password")
        if user.tokens:
            told.append(f"tokens={len(user.tokens)}")
        if user.certificate:
            told.append(f"certificate={user.certificate}")
        if user.admin:
            told.append("admin")
        print(*told, *_shown(user.rules))
    if users.anonymous:
        print("(who has not logged in)", *_shown(users.anonymous))


def change_password(arguments: argparse.Namespace) -> None:
    users = _load(arguments.users)
    _set_password(_find(users, arguments.name))
    save_users(arguments.users, users)


def add_token(arguments: argparse.Namespace) -> None:
    users = _load(arguments.users)
    user = _find(users, arguments.name)
    if arguments.replace:
        user.tokens.clear()
    token = _add_token(user)
    save_users(arguments.users, users)
    print(token)


# Their parts


def _load(path: Path) -> Users:
    if is_accessible_to_others(path):
        raise UserChangeRefused(
            f"{path} can be read or changed by everybody on this machine, and the passwords in it "
            f"may have been: change them, and `chmod 600 {path}`."
        )
    return load_users(path)


def _all(users: Users) -> list[User]:
    return list(users.users.values())


def _find(users: Users, name: str) -> User:
    user = users.users.get(name)
    if user is None:
        raise UserChangeRefused(f"there is no user {name}.")
    return user


def _rules(arguments: argparse.Namespace) -> list[Rule]:
    if arguments.queues is None and arguments.allow is None:
        return []
    if arguments.queues is None or arguments.allow is None:
        raise ValueError("--queues and --allow go together")
    return [make_rule(arguments.queues, [part.strip() for part in arguments.allow.split(",")])]


def _shown(rules: list[Rule]) -> list[str]:
    return [f"{','.join(rule.patterns)}:{','.join(sorted(rule.actions))}" for rule in rules]


def _add_token(user: User) -> str:
    token = new_token()
    user.tokens.append(token_digest(token))
    return token


def _set_password(user: User) -> None:
    try:
        user.password = hash_password(_ask_password())
    except ValueError as error:
        raise UserChangeRefused(f"{error}.") from None


def _ask_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Once more: ") != password:
        raise UserChangeRefused("these were two different passwords.")
    return password
