"""A real browser for the tests: headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect, sync_playwright

PATIENCE = 300.0  # seconds, for a busy machine


@contextmanager
def open_page() -> Iterator[Page]:
    """A page of a new browser, which waits for what it is asked for."""
    chromium = shutil.which("chromium")
    assert chromium, "this test needs Chromium; `make browser` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1200})
        page.set_default_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PATIENCE * 1000)
        yield page
        browser.close()
