"""How the page looks and is used without a mouse: themes, contrast, phone width, keyboard, names for all it has."""

from typing import Any

from playwright.sync_api import expect

from tests.web.conftest import Open, Serve
from tests.web.visit import Visit

CONTRAST = """() => {
    const lum = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const found = rgba(getComputedStyle(at).backgroundColor);
            if (found[3] > 250) return found;
        }
        return rgba(getComputedStyle(document.documentElement).backgroundColor);
    };
    const bad = [];
    for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some(one => one.nodeType === 3 && one.data.trim());
        if (!own || !node.checkVisibility({ opacityProperty: true })) continue;
        if (node.closest(":disabled, .unseen, .skip")) continue;
        const a = lum(rgba(getComputedStyle(node).color)), b = lum(ground(node));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) bad.push(`${node.className} ${ratio.toFixed(2)}: ${node.textContent.slice(0, 40)}`);
    }
    return bad;
}"""

NAMELESS = """() => [...document.querySelectorAll("button, a[href], input, textarea, select, [role=img]")]
    .filter(one => one.checkVisibility())
    .filter(one => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length || one.title))
    .map(one => one.outerHTML)"""


def busy(serve: Serve, visit: Open) -> Visit:
    """A page with everything on it: running, asking, stopped, parked, a receipt."""
    server = serve(composed=True)
    done = server.session("$ sleep 600", title="Stopped")
    server.client.post("sessions", done, "messages", body={"text": "later"})
    server.client.post("sessions", done, "stop")
    server.session("$ touch /tmp/nothing", title="Asking", agent="careful")
    server.session("@scripted $ sleep 600", title="Parent")
    one = visit(server)
    one.open(done)
    expect(one.page.locator("article.card")).to_have_count(4)
    return one


def test_every_text_has_contrast_every_control_a_name_and_a_phone_room_for_all(serve: Serve, visit: Open) -> None:
    one = busy(serve, visit)
    for where in ("session", "overview", "dialog"):
        if where == "overview":
            one.page.locator("a.mark").click()
            expect(one.page.locator(".question")).to_be_visible()
        if where == "dialog":
            one.page.keyboard.press("n")
        for scheme in ("light", "dark"):
            one.page.emulate_media(color_scheme=scheme)
            assert one.page.evaluate(CONTRAST) == [], f"{where}, {scheme}"
        assert one.page.evaluate(NAMELESS) == [], where
    for landmark in ("banner", "navigation", "main"):
        expect(one.page.get_by_role(landmark)).to_have_count(1)
    one.page.keyboard.press("Escape")
    one.page.set_viewport_size({"width": 390, "height": 844})
    for where in ("overview", "session"):
        if where == "session":
            one.page.go_back()
            expect(one.page.get_by_role("link", name="All sessions")).to_be_visible()
        assert one.page.evaluate("document.documentElement.scrollWidth") == 390, where
        box = one.page.locator("#stop-all").bounding_box()
        assert box is not None and box["x"] + box["width"] <= 390 and box["height"] >= 34


def test_the_theme_is_chosen_and_kept(serve: Serve, visit: Open) -> None:
    one = visit(serve())
    page, ground = one.page, "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark
    page.keyboard.press("t")
    assert page.evaluate(ground) == light


def test_the_keyboard_does_everything(serve: Serve, visit: Open) -> None:
    one = visit(serve())
    page = one.page
    page.keyboard.press("n")
    page.get_by_label("Title").fill("Keys")
    page.get_by_label("First message").fill("$ sleep 600")
    page.keyboard.press("Control+Enter")
    expect(one.session).to_have_attribute("data-state", "running")
    page.keyboard.press("Escape")
    expect(one.talk.locator(".turn")).to_have_attribute("data-end", "stopped")
    one.new("Second", "$ sleep 600")
    page.locator("body").click(position={"x": 5, "y": 400})
    page.keyboard.press("j")
    expect(page.locator("a.name", has_text="Second")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("a.name", has_text="Keys")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Keys")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("s")
    expect(one.card("Second").locator(".verdict[data-confirmed=yes]")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.type("typed / n ?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(one.talk).to_contain_text("You said: typed / n ?")
    page.get_by_role("button", name="Keyboard").click()
    expect(page.get_by_role("dialog")).to_contain_text("stop the turn")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def conversation(session: str, turns: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []

    def add(kind: str, **fields: Any) -> int:
        events.append({"kind": kind, "seq": len(events) + 1, "at": 1767225600.0, "session": session, **fields})
        return len(events)

    for turn in range(1, turns + 1):
        message = add("message.user", text=f"message {turn}")
        started = add("turn.started", turn=turn, cause=message)
        asked = add("model.requested", turn=turn, cause=started)
        add("model.answered", turn=turn, request=asked, text=f"answer **{turn}**")
        call = add("tool.requested", turn=turn, tool="shell", arguments={"command": f"echo {turn}"})
        add("tool.started", turn=turn, request=call)
        pid = add("process.spawned", turn=turn, cause=call, pid=turn, argv=["echo"])
        add("process.ended", turn=turn, cause=pid, pid=turn, end="exit 0")
        add("tool.ended", turn=turn, request=call, result="out\n" * 30)
        add("turn.ended", turn=turn, request=started, end="completed", steps=1)
    return events


def test_a_long_conversation_stays_fluid(serve: Serve, visit: Open) -> None:
    """5,000 events: opened at once, little of it is laid out, and a new answer does not touch what is there."""
    server = serve()
    one = visit(server)
    session = server.session("hello", title="Long")
    events = conversation(session, 500)
    one.page.route("**/history", lambda route: route.fulfill(json={"events": events}))
    one.page.evaluate("""() => {
        globalThis.slow = [];
        new PerformanceObserver(list => slow.push(...list.getEntries().map(one => one.duration)))
            .observe({ type: "longtask", buffered: true });
    }""")
    one.open(session)
    expect(one.talk.locator(".turn").last).to_contain_text("answer 500")
    assert one.talk.locator(".turn").count() == 500
    assert one.talk.locator("[data-rendered]").count() < 100  # what is far away is not rendered yet
    assert one.page.evaluate("document.querySelectorAll('*').length") < 15_000
    assert max(one.page.evaluate("slow"), default=0) < 1000
