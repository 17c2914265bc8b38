//! The dashboard's static files.

use axum::Router;
use axum::routing::get;
use http::header::CONTENT_TYPE;

use crate::queries::Queries;
use crate::views::experiment_settings::ExperimentSettings;

/// A static file.
struct Asset {
    path: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The file `$name` in `assets/`, served at `/assets/$name`.
macro_rules! asset {
    ($name:literal, $media_type:expr) => {
        Asset {
            path: concat!("/assets/", $name),
            media_type: $media_type,
            bytes: include_bytes!(concat!("assets/", $name)),
        }
    };
}

const ASSETS: [Asset; 33] = [
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
    asset!("symbols.js", SCRIPT),
    asset!("cells.js", SCRIPT),
    asset!("over-time.js", SCRIPT),
    asset!("traffic.js", SCRIPT),
    asset!("details.js", SCRIPT),
    asset!("actions.js", SCRIPT),
    asset!("record.js", SCRIPT),
    asset!("holdout.js", SCRIPT),
    asset!("lifts.js", SCRIPT),
    asset!("exports.js", SCRIPT),
    asset!("data-sets.js", SCRIPT),
    asset!("presets.js", SCRIPT),
    asset!("privacy.js", SCRIPT),
    asset!("create.js", SCRIPT),
    asset!("forms.js", SCRIPT),
    asset!("trusted.js", SCRIPT),
    asset!("trusted-create.js", SCRIPT),
    asset!("trusted-privacy.js", SCRIPT),
    asset!("released.js", SCRIPT),
    asset!("uplot/uPlot.iife.min.js", SCRIPT),
    asset!("uplot/uPlot.min.css", STYLE),
];

/// The page, without a link to data sets if this program has none.
fn page() -> String {
    let lines = include_str!("assets/index.html").split_inclusive('\n');
    lines.filter(|line| Queries::ARE_BUILT_IN || !line.contains("#/data-sets")).collect()
}

/// The script with the settings of an experiment.
const SETTINGS: &str = "/assets/settings.js";

fn settings() -> String {
    let settings = serde_json::to_string(&ExperimentSettings::form()).unwrap_or_default();
    format!("export const SETTINGS = {settings};")
}

pub(super) fn router() -> Router {
    let router = Router::new()
        .route("/", get(async || ([(CONTENT_TYPE, HTML)], page())))
        .route(SETTINGS, get(async || ([(CONTENT_TYPE, SCRIPT)], settings())));
    ASSETS.iter().fold(router, |router, Asset { path, media_type, bytes }| {
        router.route(path, get(async || ([(CONTENT_TYPE, *media_type)], *bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_learners::Learner;

    #[test]
    fn every_learner_can_be_chosen() {
        let form = settings();
        for learner in Learner::ALL {
            assert!(form.contains(&format!("[\"{}\",", learner.name())), "{learner:?}");
        }
        // Notes are the help of flags, without the defaults that are filled in.
        assert!(form.contains("even share until it has them\""), "{form}");
    }

    #[test]
    fn every_file_that_another_names_is_there() {
        let page = page();
        let named = page.split('"').filter(|word| word.starts_with("/assets/"));
        let mut named: Vec<_> = named.map(str::to_owned).collect();
        for asset in ASSETS.iter().filter(|asset| !asset.path.contains("uplot")) {
            let script = std::str::from_utf8(asset.bytes).unwrap();
            let imports = script.lines().filter(|line| line.starts_with("import "));
            let files = imports.map(|line| line.split('"').nth(1).unwrap());
            named.extend(files.map(|file| file.replace("./", "/assets/")));
        }
        assert!(named.len() > 30, "{named:?}");
        for name in named {
            let is_there = ASSETS.iter().any(|asset| asset.path == name);
            assert!(is_there || name == SETTINGS, "{name}");
        }
    }
}
