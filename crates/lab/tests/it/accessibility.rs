//! Tests that the page works by keyboard, with a screen reader and in dark mode.

use cluster_tests::Browser;

use crate::page_server::{self, PageServer};
use crate::rendering::open_page;

/// Key name and code as the browser's debugging protocol expects them.
const TAB_KEY: (&str, u32) = ("Tab", 9);

/// Finds the text with the lowest contrast to its background on the page.
///
/// The background is the nearest one that is not transparent; text in the SVG has the colour `fill`.
const WORST_CONTRAST_SCRIPT: &str = "(() => {
    const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
    const light = ([r, g, b]) => [r, g, b]
        .map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const box = at.classList.contains('box') ? at.querySelector('rect') : null;
            const color = parse(box ? getComputedStyle(box).fill : getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] > 0) return color;
        }
        return [255, 255, 255];
    };
    let worst = { ratio: 21, where: 'nowhere' };
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '');
        if (!own || element.closest('[hidden], noscript, title') || element.getClientRects().length === 0) continue;
        const style = getComputedStyle(element);
        const [text, back] = [light(parse(element.closest('svg') ? style.fill : style.color)), light(behind(element))];
        const ratio = (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
        if (ratio < worst.ratio) worst = { ratio, where: element.outerHTML };
    }
    return worst;
})()";

#[track_caller]
fn check_contrast(browser: &mut Browser, scheme: &str) {
    /// WCAG 2.2, level AA, for normal text.
    const RATIO_MIN: f64 = 4.5;
    browser.emulate_media_feature("prefers-color-scheme", scheme);
    let worst = browser.evaluate(WORST_CONTRAST_SCRIPT);
    assert!(worst["ratio"].as_f64().unwrap() >= RATIO_MIN, "{scheme}: {worst}");
}

#[test]
fn text_contrast_meets_wcag_in_light_and_dark() {
    let mut snapshot = page_server::rollout_snapshot();
    snapshot.servers[2] = page_server::killed_snapshot().servers.remove(2);
    let stage = PageServer::start(snapshot);
    let Some(mut browser) = open_page(&stage) else { return };
    check_contrast(&mut browser, "light");
    check_contrast(&mut browser, "dark");
    browser.save_screenshot(&page_server::screenshot_path("page-dark.png"));
}

#[test]
fn accessibility_tree_names_all_regions_and_controls() {
    let stage = PageServer::start(page_server::rollout_snapshot());
    let Some(mut browser) = open_page(&stage) else { return };
    let spoken = browser.accessibility_tree();
    let has = |role: &str, name: &str| spoken.iter().any(|(r, n)| r == role && n.contains(name));
    for (role, name) in [
        ("banner", ""),
        ("main", ""),
        ("contentinfo", ""),
        ("search", "Filter the map"),
        ("region", "Who serves what"),
        ("region", "Storage versions"),
        ("heading", "Rollout"),
        ("progressbar", "Rollout"),
        ("log", "What happened"),
        ("searchbox", "Group or resource"),
        ("checkbox", "only where servers differ"),
        ("columnheader", "Through any server"),
        ("rowheader", "storage.k8s.io/v1"),
        ("image", "a, release 1.37, ready; b, release 1.34, stopping"),
    ] {
        assert!(has(role, name), "no {role} {name:?} in {spoken:?}");
    }
    let nameless: Vec<_> = spoken
        .iter()
        .filter(|(role, name)| {
            name.is_empty() && ["link", "searchbox", "checkbox", "region", "image"].contains(&&**role)
        })
        .collect();
    assert!(nameless.is_empty(), "{nameless:?}");
}

#[test]
fn keyboard_reaches_all_controls_and_updates_keep_focus() {
    let stage = PageServer::start(page_server::skewed_snapshot());
    let Some(mut browser) = open_page(&stage) else { return };
    let mut reached = Vec::new();
    for _ in 0..30 {
        browser.press_key(TAB_KEY.0, TAB_KEY.1);
        let at = "(document.activeElement.id || document.activeElement.innerText).split('\\n')[0]";
        let outlined = "getComputedStyle(document.activeElement).outlineStyle";
        reached.push((browser.evaluate(at).as_str().unwrap().to_owned(), browser.evaluate(outlined)));
        if reached.last().is_some_and(|(at, _)| at == "the same as JSON") {
            break;
        }
    }
    for wanted in ["Skip to the servers", "map-text", "map-differing", "batch/v2", "versions-differing", "log"] {
        assert!(reached.iter().any(|(at, outline)| at == wanted && outline == "solid"), "{wanted}: {reached:?}");
    }
    assert_eq!(reached.last().unwrap().0, "the same as JSON", "{reached:?}");

    browser.evaluate("document.querySelector('#map tbody tr:nth-child(2) summary').focus()");
    browser.evaluate("document.activeElement.parentElement.open = true");
    stage.publish(page_server::killed_snapshot());
    browser.wait_for("document.querySelector('#servers tr[data-phase=failed]')");
    let focus = browser.evaluate("document.activeElement.innerText + ' ' + document.activeElement.parentElement.open");
    assert_eq!(focus, "batch/v2 true");

    browser.evaluate("document.getElementById('map-text').value = 'volumeattr'");
    browser.evaluate("document.getElementById('map-text').dispatchEvent(new Event('input', { bubbles: true }))");
    browser.wait_for("document.getElementById('map-count').innerText === '1 of 3 API versions'");
}
