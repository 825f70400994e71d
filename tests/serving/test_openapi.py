"""Requests made of the server's own description (OpenAPI), good ones and bad ones."""

import email
import email.policy
import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.serving.servers import Running


jsonschema = pytest.importorskip("jsonschema")
schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
# That a model knows no lengths, or a text says nothing, is no matter of the description: 422 says so.
UNDESCRIBED = [checks.positive_data_acceptance]
# What was spoilt for one kind of document (no `text`) may be a good one of another (a `file`).
STILL_GOOD = [*UNDESCRIBED, checks.negative_data_rejection]
TRUTH = {"true": True, "false": False, "1": True, "0": False}
FEW = settings(
    max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def as_sent(request: Any, form: dict[str, Any]) -> dict[str, Any]:
    """The fields of a form as they went out: a text each, or a list of those that were sent under one name."""
    head = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
    values = defaultdict(list)
    for part in email.message_from_bytes(head + (request.body or b""), policy=email.policy.HTTP).iter_parts():
        content = part.get_payload(decode=True).decode(errors="replace")
        name = part.get_param("name", header="Content-Disposition")
        truth = "boolean" in json.dumps(form["properties"].get(name))
        values[name].append(TRUTH.get(content.lower(), content) if truth else content)
    return {name: each if name == "phrases" or len(each) > 1 else each[0] for name, each in values.items()}


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("path", ["/summarize", "/summarize/stream"])
def test_whatever_is_asked_gets_an_answer_of_the_description(server: Running, path: str, mode: str):
    operation = schemathesis.openapi.from_url(f"{server.url}/openapi.json")[path]["POST"]
    form = operation.definition.raw["requestBody"]["content"]["multipart/form-data"]["schema"]
    validator = jsonschema.Draft202012Validator(form)
    seen: Counter[tuple[str, int]] = Counter()
    taken = set()  # forms; what is drawn depends on the modules that are loaded, and may be the same several times

    @FEW
    @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def come(case):
        if mode == "positive" and isinstance(case.body, dict):
            case.body.pop("phrases", None)  # this model highlights nothing, and would refuse most of what comes
        answer = case.call(timeout=120)
        # A form has no way to say that a text is a number.
        sent = None if case.media_type == "application/json" else as_sent(answer.request, form)
        fits = sent is not None and validator.is_valid(sent)
        # An undescribed status or content, a bad request that is taken, and any 500 fail here.
        case.validate_response(answer, excluded_checks=STILL_GOOD if fits else UNDESCRIBED)
        assert "Traceback" not in answer.text
        seen[case.media_type, answer.status_code] += 1
        if answer.status_code == 200:
            taken.add(json.dumps(sent, sort_keys=True))
        assert fits or answer.status_code != 200 or case.media_type == "application/json", answer.request.body

    come()
    assert {kind for kind, _ in seen} == {"application/json", "multipart/form-data"}
    good = sum(count for (_, status), count in seen.items() if status == 200)
    assert good >= 3 if mode == "positive" else len(taken) <= 3, seen
    assert mode == "positive" or ("application/json", 200) not in seen


def test_other_operations(server: Running):
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    for path in ("/health", "/metrics"):
        assert schema[path]["GET"].Case().call_and_validate().status_code == 200
