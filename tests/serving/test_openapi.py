"""Requests made of the server's own description (OpenAPI), good ones and bad ones."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.serving.servers import Running


jsonschema = pytest.importorskip("jsonschema")
schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
# That a model knows no lengths, or a text says nothing, is no matter of the description: 422 says so.
UNDESCRIBED = [checks.positive_data_acceptance]
TRUTH = {"True": True, "False": False, "true": True, "false": False, "1": True, "0": False}
FEW = settings(
    max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def as_sent(body: Any, form: dict[str, Any]) -> Any:
    """What the fields of a form say once they are text; what has parts cannot be sent."""
    if not isinstance(body, dict):
        return body
    fields = {name: value if isinstance(value, list | dict) else str(value) for name, value in body.items()}
    for name in fields.keys() & form["properties"]:
        if str(fields[name]) in TRUTH and "boolean" in json.dumps(form["properties"][name]):
            fields[name] = TRUTH[str(fields[name])]
    return fields


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("path", ["/summarize", "/summarize/stream"])
def test_whatever_is_asked_gets_an_answer_of_the_description(server: Running, path: str, mode: str):
    operation = schemathesis.openapi.from_url(f"{server.url}/openapi.json")[path]["POST"]
    form = operation.definition.raw["requestBody"]["content"]["multipart/form-data"]["schema"]
    seen: Counter[tuple[str, int]] = Counter()

    @FEW
    @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def come(case):
        if mode == "positive" and isinstance(case.body, dict):
            case.body.pop("phrases", None)  # this model highlights nothing, and would refuse most of what comes
        # An undescribed status or content, a bad request that is taken, and any 500 fail here.
        answer = case.call_and_validate(excluded_checks=UNDESCRIBED, timeout=120)
        assert "Traceback" not in answer.text
        seen[case.media_type, answer.status_code] += 1
        if mode == "negative" and answer.status_code == 200:
            # A form has no way to say that a text is a number.
            assert not list(jsonschema.Draft202012Validator(form).iter_errors(as_sent(case.body, form))), case.body

    come()
    assert {kind for kind, _ in seen} == {"application/json", "multipart/form-data"}
    good = sum(count for (_, status), count in seen.items() if status == 200)
    assert good >= 3 if mode == "positive" else good <= 3, seen
    assert mode == "positive" or ("application/json", 200) not in seen


def test_other_operations(server: Running):
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    for path in ("/health", "/metrics"):
        assert schema[path]["GET"].Case().call_and_validate().status_code == 200
