"""Merge patches: the examples of RFC 7396, and what its text leaves open."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobyard.wire.json.merge_patch import PATCH_DEPTH_MAX, BadPatch, read_patch


def patched(target: str, patch: str) -> str | None:
    text = patch.encode()
    found = read_patch(text, 0, len(text)).applied(target.encode())
    return None if found is None else found.decode()


# Appendix A of the RFC.
EXAMPLES = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]


@pytest.mark.parametrize(("target", "patch", "wanted"), EXAMPLES)
def test_the_examples_of_the_rfc(target: str, patch: str, wanted: str) -> None:
    assert patched(target, patch) == wanted


@pytest.mark.parametrize(
    ("target", "patch", "wanted"),
    [
        # Numbers and escapes that are not named keep their text.
        ('{ "n": 1.10, "big": 9007199254740993 , "x":1}', '{"x":2}',
         '{"n": 1.10, "big": 9007199254740993,"x":2}'),
        ('{"t":"\\ud800", "x":{"y":1e400}}', '{"x":{"z":0}}',
         '{"t":"\\ud800","x":{"y":1e400,"z":0}}'),
        # The run of fields on both sides of a removed one.
        ('{"a":1, "b":2, "c":3, "d":4}', '{"c":null}', '{"a":1, "b":2,"d":4}'),
        # A key may be written in two ways.
        ('{"\\u0061":1}', '{"a":2}', '{"\\u0061":2}'),
        ('{"ä":1}', '{"\\u00e4":2}', '{"ä":2}'),
        # The last of equal keys counts.
        ('{"a":1,"b":0,"a":2}', '{"a":3}', '{"b":0,"a":3}'),
        ('{"a":{"x":1},"a":{"y":2}}', '{"a":{"z":3}}', '{"a":{"y":2,"z":3}}'),
        ('{"a":1,"a":2}', '{"a":null}', "{}"),
        (" [ ] ", '{"a":{"b":null}}', '{"a":{}}'),
        (' {"a":1} ', "{}", '{"a":1}'),
    ],
)  # fmt: skip
def test_what_is_not_named_is_copied(target: str, patch: str, wanted: str) -> None:
    assert patched(target, patch) == wanted


@pytest.mark.parametrize(
    "target", ["", "nix", '{"a":1', '{"a":1}}', '{"a" 1}', '{"a":tru}', "[" * 200]
)
def test_a_target_that_is_not_json(target: str) -> None:
    assert patched(target, '{"b":1}') is None


def test_a_patch_has_no_twins_and_is_not_too_deep() -> None:
    for patch in ('{"a":1,"a":2}', '{"x":{"a":1,"\\u0061":2}}'):
        with pytest.raises(BadPatch, match="duplicate"):
            patched("{}", patch)
    deep = '{"a":' * PATCH_DEPTH_MAX + "1" + "}" * PATCH_DEPTH_MAX
    assert patched("{}", deep) == deep
    with pytest.raises(BadPatch, match="nested"):
        patched("{}", f'{{"a":{deep}}}')
    # Values that are no objects are bounded like any JSON.
    assert patched("{}", '{"a":' + "[" * 100 + "]" * 100 + "}") is not None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "ä", '"', ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


def merged(target: Any, patch: Any) -> Any:
    """MergePatch of the RFC, section 2."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


@given(VALUES, VALUES, st.sampled_from([None, 1]), st.sampled_from([True, False]))
def test_it_does_what_the_rfc_says(
    target: Any, patch: Any, indent: int | None, ascii_only: object
) -> None:
    text = json.dumps(target, indent=indent, ensure_ascii=bool(ascii_only))
    found = patched(text, json.dumps(patch, ensure_ascii=not ascii_only))
    assert found is not None
    assert json.loads(found) == merged(target, patch)
