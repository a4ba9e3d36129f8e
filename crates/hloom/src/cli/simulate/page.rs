//! A sweep as a page to look at: one file of HTML that needs nothing else and asks no network.
//!
//! Markup, style and script are files in `page/`; what they show is put in as JSON. Nothing from the module can end the
//! script or become markup: `<` never appears in the data.

use super::sweep::Row;
use serde::Serialize;

const SWEEP: &str = include_str!("page/sweep.html");
const STYLE: &str = include_str!("page/style.css");
const SWEEP_SCRIPT: &str = include_str!("page/sweep.js");

pub(super) fn sweep(file: &str, rows: &[Row]) -> String {
    #[derive(Serialize)]
    struct Data<'a> {
        file: &'a str,
        rows: &'a [Row],
    }
    let data =
        serde_json::to_string(&Data { file, rows }).unwrap_or_else(|_| "null".to_owned()).replace('<', "\\u003c");
    // The data come last: nothing in them is looked for again.
    SWEEP.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SWEEP_SCRIPT).replace("/*DATA*/null", &data)
}
