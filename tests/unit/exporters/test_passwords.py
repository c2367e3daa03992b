"""Basic auth: right and wrong passwords, guessing, and what a good one costs the second time."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys

import pytest

from trainprobe_exporters.passwords import MAX_WAITING, BusyError, Passwords

SECRET = "$2y$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e"  # of "correct horse"
LONG = "$2y$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i"  # of 72 times "x"


def header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def ask(passwords: Passwords, *headers: str) -> list[str]:
    async def all_of_them() -> list[str]:
        return [await passwords.name(text) for text in headers]

    return asyncio.run(all_of_them())


def test_a_bcrypt_hash_opens_to_its_password_only() -> None:
    passwords = Passwords(hashed={"ann": SECRET})
    right, wrong, nobody, empty = ask(
        passwords,
        header("ann", "correct horse"),
        header("ann", "correct horsf"),
        header("bob", "correct horse"),
        header("ann", ""),
    )
    assert (right, wrong, nobody, empty) == ("ann", "", "", "")


def test_bcrypt_takes_72_bytes_of_a_password_and_the_rest_is_no_error() -> None:
    assert ask(Passwords(hashed={"ann": SECRET}), header("ann", "x" * 73)) == [""]
    long = Passwords(hashed={"ann": LONG})
    assert ask(long, header("ann", "x" * 72 + "y"), header("ann", "x" * 71)) == ["ann", ""]


def test_bcrypt_is_loaded_only_where_there_are_hashes() -> None:
    ask = "import sys; from trainprobe_exporters.passwords import Passwords; {}; print('bcrypt' in sys.modules)"
    for made, loaded in (("Passwords(plain={'a': 'b'})", "False"), (f"Passwords(hashed={{'a': {SECRET!r}}})", "True")):
        told = subprocess.run([sys.executable, "-c", ask.format(made)], capture_output=True, text=True, check=True)
        assert told.stdout.strip() == loaded


def test_a_password_in_the_clear_opens_to_it_only() -> None:
    passwords = Passwords(plain={"ann": "p:ä ss"})
    assert ask(passwords, header("ann", "p:ä ss"), header("ann", "p:ä s"), header("bob", "p:ä ss")) == ["ann", "", ""]


@pytest.mark.parametrize("text", ["", "Basic", "Basic !!", "Basic YW5u", "Bearer YW5uOng=", "Basic /zo=", "Basic YToA"])
def test_what_is_no_pair_opens_nothing(text: str) -> None:
    assert ask(Passwords(plain={"ann": ""}, hashed={"a": SECRET}), text) == [""]


def test_without_names_nobody_is_known() -> None:
    assert not Passwords()
    assert ask(Passwords(), header("ann", "x")) == [""]


def test_a_good_password_is_hashed_once_and_guesses_do_not_hold_it_up() -> None:
    async def scene() -> None:
        passwords = Passwords(hashed={"ann": SECRET})
        assert await passwords.name(header("ann", "correct horse")) == "ann"
        guesses = [asyncio.create_task(passwords.name(header("ann", f"guess {n}"))) for n in range(MAX_WAITING)]
        await asyncio.sleep(0)
        assert await passwords.name(header("ann", "correct horse")) == "ann"
        assert not guesses[-1].done()
        with pytest.raises(BusyError):
            await passwords.name(header("ann", "one guess more"))
        assert await asyncio.gather(*guesses) == [""] * MAX_WAITING

    asyncio.run(scene())
