"""rule_text: the host gets the keyword's value."""

import enum
import errno
import ipaddress
import os
import tomllib

import pytest
import rdmaemu


def parsed(text):
    return tomllib.loads("rule = {%s}" % text)["rule"]


@pytest.mark.parametrize("value", [
    "plain", "", 'a "quoted" word', "back\\slash", "two\nlines\r\ttab", "\x00\x01\x1f\x7f", "ümläut ☃ 𝄞",
    "# no comment", "a = 1, b = 2", "'''", '"""', "}", 0, 1, -110, 2**63 - 1, True, False, 0.5, 1e-05,
    1e16, ["a", 'b"'], [1, -2], [], [True]])
def test_values_are_toml(value):
    assert parsed(rdmaemu.rule_text(name=value)) == {"name": value}
    assert type(parsed(rdmaemu.rule_text(name=value))["name"]) is type(value)


def test_values_of_other_types_are_written_as_what_they_mean():
    class Reason(enum.IntEnum):
        CONSUMER_DEFINED = 28

    class Status(str, enum.Enum):
        RETRY = "retry_exc_err"

    text = rdmaemu.rule_text(
        reject=Reason.CONSUMER_DEFINED, status=Status.RETRY, errno=errno.ENOMEM, after=None,
        remote=ipaddress.ip_network("10.0.0.0/8"), local=ipaddress.ip_address("::1"), at=("cm.req", "cm.rep"))
    assert parsed(text) == {"reject": 28, "status": "retry_exc_err", "errno": "ENOMEM",
                            "remote": "10.0.0.0/8", "local": "::1", "at": ["cm.req", "cm.rep"]}


def test_a_key_that_is_a_word_of_python_has_an_underscore():
    assert parsed(rdmaemu.rule_text(async_="qp_fatal")) == {"async": "qp_fatal"}


@pytest.mark.parametrize("value", [b"bytes", object(), {"a": 1}, 1j])
def test_other_values_are_type_errors(value):
    with pytest.raises(TypeError, match="private_data = .*a rule has no"):
        rdmaemu.rule_text(private_data=value)


def test_a_number_that_is_no_errno_is_an_error():
    with pytest.raises(ValueError, match="errno = 99999"):
        rdmaemu.rule_text(errno=99999)


def test_every_key_of_the_example_scenario_is_a_keyword():
    path = os.path.join(os.environ["RDMAEMU_TEST_PREFIX"],
                        "share/doc/rdmaemu/scenario.example.toml")
    with open(path, "rb") as file:
        rules = tomllib.load(file)["fault"]
    assert len(rules) > 20
    for rule in rules:
        keys = {"async_" if key == "async" else key: value for key, value in rule.items()}
        assert parsed(rdmaemu.rule_text(**keys)) == rule


def test_the_host_understands_what_is_quoted(rdmaemu_host):
    name = 'a "strange" \\ name ☃'
    with rdmaemu_host.fault(name=name, at="cm.req", reject=28, private_data="try\tlater\n") as fault:
        assert fault.name == name
        assert [rule.name for rule in rdmaemu_host.rules()] == [name]
