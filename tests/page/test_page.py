"""The admin page in a browser."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import Any

import pytest
from playwright.async_api import Page, expect

from prefix_router.admin.control import Reply
from prefix_router.routing.fleet import Backend, BackendName, BackendState
from tests.page.conftest import Desk, Open, picture

pytestmark = pytest.mark.page

TOKEN = "correct horse"
TOKEN_SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()

CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest(".unseen, svg, script, .skip, :disabled")) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(`${node.tagName} ${node.textContent.slice(0, 30)}`);
  }
  return poor;
}"""

UNNAMED = """() => [...document.querySelectorAll("button, input, textarea, svg[role=img], section, .scroll")]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.getAttribute("aria-label")
    || document.getElementById(node.getAttribute("aria-labelledby"))?.textContent
    || node.textContent.trim() || node.labels?.[0]?.textContent.trim()))
  .map((node) => node.outerHTML.slice(0, 80))"""

WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def row(page: Page, name: str) -> Any:
    return page.locator("#fleet-body tr").filter(has=page.get_by_role("rowheader", name=name))


async def test_an_empty_fleet_says_what_to_do(open_page: Open) -> None:
    page = await open_page(Desk(0))
    await expect(page.get_by_role("heading", name="No backends yet")).to_be_visible()
    await picture(page, "empty")


async def test_one_down_is_told_in_words_with_its_cause(open_page: Open) -> None:
    desk = Desk(3)
    desk.change("gpu-01", state=BackendState.DOWN)
    desk.live_through(1)
    page = await open_page(desk)
    await expect(row(page, "gpu-01")).to_contain_text("down")
    await expect(row(page, "gpu-01")).to_contain_text("connection refused")
    await picture(page, "one_down")


async def test_a_change_of_state_is_announced_once(open_page: Open) -> None:
    desk = Desk(2)
    page = await open_page(desk)
    await expect(page.locator("#spoken")).to_be_empty()
    desk.change("gpu-01", state=BackendState.DOWN)
    await expect(page.locator("#spoken")).to_have_text("gpu-01 is down")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_forty_backends_can_be_read_sorted_and_filtered(open_page: Open, scheme: str) -> None:
    desk = Desk(40)
    desk.change("gpu-07", state=BackendState.EJECTED)
    desk.change("gpu-11", draining=True)
    desk.live_through(1)
    page = await open_page(desk, color_scheme=scheme, viewport={"width": 1440, "height": 900})
    await expect(page.locator("#fleet-body tr")).to_have_count(40)
    await expect(page.locator("#keys tr")).to_have_count(20)
    assert await page.evaluate(CONTRASTS) == []
    assert await page.evaluate(UNNAMED) == []
    await picture(page, f"forty_{scheme}")
    await page.get_by_role("button", name="State", exact=True).click()
    await expect(page.locator("#fleet-body tr").first).to_contain_text("gpu-07")
    await expect(page.get_by_role("columnheader", name="State")).to_have_attribute("aria-sort", "ascending")
    await page.get_by_label("Filter backends").fill("draining")
    await expect(page.locator("#fleet-body tr")).to_have_count(1)
    await expect(page.locator("#backends-count")).to_have_text("1 of 40")


async def test_numbers_follow_traffic_without_a_reload(open_page: Open) -> None:
    desk = Desk(2)
    page = await open_page(desk)
    await expect(page.locator("#tile-hits .value")).to_have_text("–")
    desk.live_through(0.1)
    await expect(page.locator("#tile-hits .value")).not_to_have_text("–", timeout=20_000)
    await expect(page.locator("#reasons")).to_contain_text("affinity")


async def test_what_came_later_is_put_behind_what_was_there(open_page: Open) -> None:
    desk = Desk(1)
    desk.live_through(0.1)
    page = await open_page(desk)
    figures = page.locator("#reasons .figures span")
    before = await figures.all_inner_texts()
    desk.now += 60
    await page.wait_for_timeout(11_000)
    assert await figures.all_inner_texts() == before


async def test_a_drain_is_confirmed_and_can_be_undone(open_page: Open) -> None:
    desk = Desk(2)
    page = await open_page(desk)
    await page.get_by_role("button", name="Drain gpu-01").click()
    await page.get_by_role("button", name="Cancel").click()
    assert not desk.fleet.by_name[BackendName("gpu-01")].draining
    await page.get_by_role("button", name="Drain gpu-01").click()
    await page.get_by_role("button", name="Drain", exact=True).click()
    await expect(row(page, "gpu-01")).to_contain_text("draining")
    await page.get_by_role("button", name="Undrain gpu-01").click()
    await expect(page.get_by_role("button", name="Drain gpu-01")).to_be_visible()


async def test_the_token_is_asked_for_once_and_a_wrong_one_again(open_page: Open) -> None:
    desk = Desk(2, token_sha256=TOKEN_SHA256)
    page = await open_page(desk)
    await expect(page.locator("#keys-note")).to_have_text("needs the admin token")
    await page.get_by_role("button", name="Drain gpu-00").click()
    await page.get_by_role("button", name="Drain", exact=True).click()
    for given, said in (("wrong", "needs the admin token"), (TOKEN, "That was not the admin token")):
        await expect(page.locator("#token-text")).to_contain_text(said)
        await page.locator("#token-input").fill(given)
        await page.get_by_role("button", name="Use it").click()
    await expect(row(page, "gpu-00")).to_contain_text("draining")
    await page.get_by_role("button", name="Undrain gpu-00").click()
    await expect(page.get_by_role("button", name="Drain gpu-00")).to_be_visible()
    await expect(page.locator("#token")).not_to_be_visible()


async def test_who_has_no_token_is_told_and_nothing_happens(open_page: Open) -> None:
    desk = Desk(1, token_sha256=TOKEN_SHA256)
    page = await open_page(desk)
    await page.get_by_role("button", name="Reload configuration").click()
    await page.keyboard.press("Escape")
    await expect(page.locator("#reloaded")).to_contain_text("needs the admin token")


@pytest.mark.parametrize(
    ("pasted", "path"),
    [
        ('{"prompt": "it\'s"}', None),
        (
            "curl http://r:8000/v1/completions \\\n -H 'a: b' -d '{\"prompt\": \"it'\\''s\"}'",
            "/v1/completions",
        ),
    ],
)
async def test_a_body_or_a_curl_command_is_explained(open_page: Open, pasted: str, path: str | None) -> None:
    desk = Desk(2)
    chosen = {"backend": "gpu-01", "url": "http://10.0.0.1:8000", "reason": "affinity"}
    desk.explanation = {
        "path": "/v1/completions", "api": "completions", "model": None, "key": "00000000deadbeef",
        "prefix": {"counted": 2, "unit": "tokens"}, "hashed_text": "<img src=x onerror=alert(1)>it's",
        "decision": chosen, "home": "gpu-01",
        "if_home_were_full": {**chosen, "backend": "gpu-00", "reason": "overflow"},
        "if_home_were_down": None, "ring_order": [],
    }  # fmt: skip
    page = await open_page(desk)
    await page.get_by_label("A request body").fill(pasted)
    await page.get_by_role("button", name="Explain").click()
    shown = page.locator("#explained")
    await expect(shown).to_contain_text("gpu-01 (affinity)")
    await expect(shown).to_contain_text("gpu-00 (overflow)")
    await expect(shown.locator("pre")).to_have_text("<img src=x onerror=alert(1)>it's")
    ((body, asked_path),) = desk.explained
    assert (json.loads(body), asked_path) == ({"prompt": "it's"}, path)


async def test_a_reload_shows_what_changed(open_page: Open) -> None:
    desk = Desk(1)
    change = {"path": "routing.concurrency_threshold", "old": 64, "new": 48}
    restart = {"path": "listen.port", "old": 8000, "new": 8080}
    desk.reply = Reply(HTTPStatus.OK, {"applied": [change], "needs_restart": [restart]})
    page = await open_page(desk)
    await page.get_by_role("button", name="Reload configuration").click()
    await expect(page.locator("#reloaded")).to_contain_text("routing.concurrency_threshold: 64 → 48")
    await expect(page.locator("#reloaded")).to_contain_text("listen.port: 8000 → 8080")


async def test_a_reload_with_mistakes_shows_each_with_its_line(open_page: Open) -> None:
    desk = Desk(1)
    problem = {"source": "r.yaml", "line": 7, "path": "limits.x", "message": "unknown setting"}
    desk.reply = Reply(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": "has mistakes", "problems": [problem]})
    page = await open_page(desk)
    await page.get_by_role("button", name="Reload configuration").click()
    await expect(page.locator("#reloaded")).to_contain_text("r.yaml:7 limits.x unknown setting")
    await picture(page, "reload_mistakes")


async def test_a_router_that_is_gone_is_told(open_page: Open) -> None:
    desk = Desk(1)
    page = await open_page(desk, gone=True)
    await desk.server.close()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be reached", timeout=15_000)
    await expect(page.locator("#link")).to_have_text("not reached")
    await picture(page, "gone")


async def test_long_and_hostile_names_are_text_and_break_nothing(open_page: Open) -> None:
    desk = Desk(0)
    name = BackendName("<b>x</b>" + "long" * 60)
    desk.set_fleet([Backend(name, "http://10.0.0.1:8000")])
    page = await open_page(desk, viewport={"width": 360, "height": 780})
    await expect(page.get_by_role("rowheader", name="long")).to_contain_text("<b>x</b>")
    assert await page.locator("#fleet-body b").count() == 0
    assert await page.evaluate(WIDER) <= 0


async def test_360_pixels_are_enough(open_page: Open) -> None:
    desk = Desk(4)
    desk.live_through(1)
    page = await open_page(desk, viewport={"width": 360, "height": 780})
    await expect(page.locator("#reasons")).to_contain_text("affinity")
    assert await page.evaluate(WIDER) <= 0
    await picture(page, "narrow")


async def test_a_keyboard_is_enough_to_drain(open_page: Open) -> None:
    desk = Desk(1)
    page = await open_page(desk)
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await page.evaluate("() => document.activeElement.textContent") == "Drain":
            break
    assert await page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid"
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(row(page, "gpu-00")).to_contain_text("draining")


async def test_the_landmarks_are_named(open_page: Open) -> None:
    page = await open_page(Desk(2))
    for name in ("Now", "Backends 2", "Hottest keys", "Explain a request", "How they ended"):
        assert (
            await page.locator("section").and_(page.get_by_role("region", name=name, exact=True)).count() == 1
        )
    assert await page.get_by_role("main").count() == await page.get_by_role("banner").count() == 1
    assert await page.locator("thead th:not([scope=col])").count() == 0
