"""A person before the page: what they press and what they see, by the names that the page gives things."""

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Locator, expect

from tests.cli.serving import Served

NETWORK = ("Failed to load resource", "WebSocket connection to", "net::ERR")
"""What Chromium itself says of a server that is not there, or that refuses."""


class Visit:
    def __init__(self, context: BrowserContext, server: Served) -> None:
        self.context = context
        self.server = server
        self.complaints: list[str] = []
        self.page = context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        self.page.on("dialog", self._refuse)
        self.page.goto(server.client.post("launches")["url"])
        self.page.wait_for_url(f"{server.url}/")
        expect(self.page.locator("#pulse")).not_to_be_empty()

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(NETWORK):
            self.complaints.append(f"{message.type}: {message.text}")

    def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    # -- what is on the page

    def card(self, title: str) -> Locator:
        return self.page.locator("article.card").filter(has=self.page.locator("a.name", has_text=title))

    @property
    def halt(self) -> Locator:
        """The panel of Stop All."""
        return self.page.locator("#halt")

    @property
    def gate(self) -> Locator:
        return self.page.locator("#gate")

    @property
    def session(self) -> Locator:
        return self.page.locator(".session")

    @property
    def talk(self) -> Locator:
        return self.page.locator(".talk")

    def banner(self, words: str) -> Locator:
        return self.page.locator(".banner", has_text=words)

    # -- what a person does

    def new(self, title: str, text: str = "", agent: str = "", folder: str = "") -> str:
        """A new session by the dialog; its id."""
        page = self.page
        page.get_by_role("button", name="New session").click()
        dialog = page.get_by_role("dialog")
        if agent:
            dialog.get_by_label("Agent").select_option(agent)
        dialog.get_by_label("Title").fill(title)
        dialog.get_by_label("Folder").fill(folder)
        dialog.get_by_label("First message").fill(text)
        dialog.get_by_role("button", name="Start").click()
        expect(page.locator("h1", has_text=title)).to_be_visible()
        return page.url.rpartition("/")[2]

    def open(self, session: str) -> None:
        self.page.goto(f"{self.server.url}/#/s/{session}")
        expect(self.page.locator(".loading")).to_have_count(0)

    def say(self, text: str) -> None:
        box = self.page.get_by_label("Message")
        box.fill(text)
        box.press("Enter")
        expect(box).to_have_value("")

    def stop_all(self) -> None:
        self.page.locator("#stop-all").click()

    def stop(self, title: str) -> None:
        self.card(title).get_by_role("button", name="Stop").click()
