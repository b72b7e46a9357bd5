"""The page in a real browser: results, comparison, escaping, errors, narrow screens."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from helpers.served import TOKEN
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs chromium and chromedriver (apt install chromium-driver)",
)

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--window-size=1200,900",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: webdriver.Chrome, server: str) -> webdriver.Chrome:
    browser.get(f"{server}/health")
    browser.execute_script("sessionStorage.setItem('token', arguments[0])", TOKEN)
    browser.get(server)
    wait(browser, lambda: "documents" in text(browser, "#about"))
    return browser


def wait(browser: webdriver.Chrome, condition) -> None:
    WebDriverWait(browser, 30).until(lambda _: condition())


def text(browser: webdriver.Chrome, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def count(browser: webdriver.Chrome, selector: str) -> int:
    return len(browser.find_elements(By.CSS_SELECTOR, selector))


def search(browser: webdriver.Chrome, query: str) -> None:
    box = browser.find_element(By.ID, "query")
    box.clear()
    box.send_keys(query, Keys.ENTER)
    wait(browser, lambda: text(browser, "#status").startswith("The best "))


def test_a_search_shows_contributions_spectra_and_maxsim(page) -> None:
    search(page, "the sea is red")
    assert [h.text for h in page.find_elements(By.TAG_NAME, "h2")] == ["EigenLI", "Full MaxSim"]
    assert count(page, "section:first-child article") == 10
    assert count(page, "section:last-child article") == 10
    assert "single vectors, k=4" in text(page, "section:first-child h2 + p")
    assert re.fullmatch(r"-?\d+%", text(page, "article .score"))
    assert "first k of them" in text(page, "footer")
    first = page.find_element(By.CSS_SELECTOR, "article .strip")
    assert {"sea", "red"} & {m.text for m in page.find_elements(By.TAG_NAME, "mark")}
    assert {"sea", "red"} <= {token.text for token in first.find_elements(By.TAG_NAME, "b")}
    wait(page, lambda: count(page, "section:first-child svg[role=img]") == 10)
    label = page.find_element(By.TAG_NAME, "svg").get_attribute("aria-label")
    assert label.startswith("Spectrum: 4 of ")
    assert page.current_url.endswith("?q=the%20sea%20is%20red")
    page.find_element(By.ID, "maxsim").click()
    wait(page, lambda: count(page, "section") == 1)


def test_markup_in_documents_is_text(page) -> None:
    page.find_element(By.CSS_SELECTOR, "#top option:last-child").click()
    search(page, "the sea is red")
    titles = [title.text for title in page.find_elements(By.TAG_NAME, "h3")]
    assert "<script>alert(1)</script>" in titles
    assert count(page, "main img") == count(page, "main script") == 0
    assert page.title == "EigenLI search"


def test_the_keyboard_suffices(page) -> None:
    page.find_element(By.TAG_NAME, "body").click()
    page.switch_to.active_element.send_keys("/")
    assert page.switch_to.active_element.get_attribute("id") == "query"
    page.switch_to.active_element.send_keys("blue sky", Keys.ENTER)
    wait(page, lambda: count(page, "article") > 0)


def test_an_empty_query_and_an_error_are_said(page) -> None:
    page.find_element(By.ID, "query").send_keys(Keys.ENTER)
    assert text(page, "#status") == "Type a query."
    page.execute_script("window.fetch = () => Promise.reject(new TypeError('offline'))")
    page.find_element(By.ID, "query").send_keys("red", Keys.ENTER)
    wait(page, lambda: text(page, "#status") == "The server does not answer.")


def test_an_index_without_a_model_says_so_before_any_search(page) -> None:
    page.execute_script("info.model = null; describe = async () => {}; start()")
    wait(page, lambda: "names no model" in text(page, "#status"))
    assert "--model" in text(page, "#status")


def test_passages_are_counted_with_their_files(page) -> None:
    counts = {"holds": "texts", "documents": 90, "passages": 84, "files": 1, "bytes": None}
    page.execute_script("call = async () => arguments[0]; describe()", counts)
    wait(page, lambda: text(page, "#about") == "84 passages of 1 file and 6 other documents")


def test_a_server_with_a_token_asks_for_it(browser, server) -> None:
    browser.get(f"{server}/health")
    browser.execute_script("sessionStorage.clear()")
    browser.get(server)
    wait(browser, lambda: browser.find_element(By.ID, "token").is_displayed())
    browser.find_element(By.ID, "token").send_keys(TOKEN, Keys.ENTER)
    wait(browser, lambda: "documents" in text(browser, "#about"))
    assert not browser.find_element(By.ID, "token").is_displayed()


def test_nothing_sticks_out_of_a_narrow_screen(page) -> None:
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        search(page, "the sea is red")
        width = page.execute_script("return document.documentElement.scrollWidth")
        assert width <= 360
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_browser_has_nothing_to_complain_of(page) -> None:
    page.get_log("browser")
    search(page, "green grass")
    assert [entry["message"] for entry in page.get_log("browser")] == []
