//! The files of the pages.

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;

/// A file.
struct Asset {
    path: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The file `$name` in `assets/`, at that name below `/assets/`.
macro_rules! asset {
    ($name:literal, $media_type:expr) => {
        Asset {
            path: concat!("/assets/", $name),
            media_type: $media_type,
            bytes: include_bytes!(concat!("assets/", $name)),
        }
    };
}

const ASSETS: [Asset; 20] = [
    Asset {
        path: "/",
        media_type: "text/html; charset=utf-8",
        bytes: include_bytes!("assets/index.html"),
    },
    asset!("style.css", STYLE),
    asset!("icon.svg", "image/svg+xml"),
    asset!("main.js", SCRIPT),
    asset!("server.js", SCRIPT),
    asset!("elements.js", SCRIPT),
    asset!("text.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("sign-in.js", SCRIPT),
    asset!("experiments.js", SCRIPT),
    asset!("experiment.js", SCRIPT),
    asset!("arms.js", SCRIPT),
    asset!("arm-names.js", SCRIPT),
    asset!("traffic.js", SCRIPT),
    asset!("details.js", SCRIPT),
    asset!("conduct.js", SCRIPT),
    asset!("privacy.js", SCRIPT),
    asset!("create.js", SCRIPT),
    asset!("uplot/uPlot.iife.min.js", SCRIPT),
    asset!("uplot/uPlot.min.css", STYLE),
];

pub(super) fn router() -> Router {
    ASSETS.iter().fold(Router::new(), |router, Asset { path, media_type, bytes }| {
        router.route(path, get(async || ([(CONTENT_TYPE, *media_type)], *bytes)))
    })
}
