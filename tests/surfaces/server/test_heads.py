"""HEAD of whatever can be got has its headers and no body, and is counted as what it is."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import omnigraph as og
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.settings import ServerSettings
from tests.support.inside import inside
from tests.surfaces.server.conftest import make_graph


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = ServerSettings(unauthenticated=True)
    place = make_graph(tmp_path_factory.mktemp("heads"))
    with og.connect(place) as graph, inside(create_app(settings, {"kb": graph})) as http:
        yield http


@pytest.mark.parametrize(
    "path",
    ["/branches", "/snapshot", "/rows/node/Person", "http://server/healthz", "http://server/readyz", "/none"],
)
def test_a_head_has_the_headers_of_a_get_and_no_body(http: httpx.Client, path: str) -> None:
    given = {"X-Request-Id": "r-1"}
    head, get = http.head(path, headers=given), http.get(path, headers=given)
    wanted = {name: value for name, value in get.headers.items() if name in head.headers}
    assert (head.status_code, dict(head.headers)) == (get.status_code, wanted)
    assert set(get.headers) - set(head.headers) <= {"content-length"}  # which a stream has not
    assert head.content == b""
    assert get.content


def test_what_is_not_got_has_no_head(http: httpx.Client) -> None:
    answer = http.head("/mutate")
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"


def test_it_is_counted_as_a_head(http: httpx.Client) -> None:
    http.head("/tags")
    metrics = http.get("http://server/metrics").text
    assert 'og_http_requests_total{code="200",method="HEAD",route="/tags"} 1.0' in metrics
