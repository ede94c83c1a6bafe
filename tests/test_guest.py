from prime import guest


def test_only_listed_and_named_variables_pass() -> None:
    host = {"PATH": "/bin", "LC_ALL": "C", "OPENAI_API_KEY": "secret", "AWS_SECRET": "secret", "PROJECT": "mine"}
    environment = guest.environment(host, ["PROJECT", "ABSENT"])
    assert set(environment) - set(guest.NON_INTERACTIVE) == {"PATH", "LC_ALL", "PROJECT"}
    assert "secret" not in environment.values()


def test_nothing_is_searched_for_in_the_folder_where_a_program_starts() -> None:
    host = {"PATH": ":/bin:bin:./x:/usr/bin:", "PYTHONPATH": ":/mine", "LD_LIBRARY_PATH": ".", "HOME": "relative"}
    environment = guest.environment(host)
    assert (environment["PATH"], environment["PYTHONPATH"]) == ("/bin:/usr/bin", "/mine")
    assert (environment["LD_LIBRARY_PATH"], environment["HOME"]) == ("", "relative")


def test_programs_are_kept_from_asking_unless_the_user_says_so() -> None:
    host = {"PAGER": "less", "EDITOR": "vim", "GIT_TERMINAL_PROMPT": "1"}
    assert guest.environment(host) == dict(guest.NON_INTERACTIVE)
    assert guest.environment(host, ["PAGER"])["PAGER"] == "less"


def test_no_listed_variable_looks_like_a_secret() -> None:
    words = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
    assert [name for name in guest.PASSED if any(word in name for word in words)] == []
