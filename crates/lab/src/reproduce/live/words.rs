//! Live values as text: in Markdown, in HTML, and as lines of CSV.

use std::fmt::Write as _;

use nic_firmware_model::reproduce::report::number;

use super::{Live, LiveExhibit, LiveValue};
use crate::plot::svg::escape;
use crate::table::{csv_number, csv_record};

/// What all pages say of live values.
const ABOUT: &str = "Measured live on this machine, which is not the paper's: what compares is \
                     each value with others of its table. The paper's value and the model's \
                     stand beside where there are any.";

const WARNING: &str = "A quick look or a debug build: these values say nothing.";

/// As many digits as say something; nothing where there is no value.
fn or_nothing(value: Option<f64>) -> String {
    value.map(number).unwrap_or_default()
}

/// The lines of a CSV file.
pub(in super::super) fn csv(exhibit: &LiveExhibit) -> String {
    let mut text = String::from("row,column,paper,model,live,by\r\n");
    for value in &exhibit.values {
        text += &csv_record([
            &value.row,
            value.column,
            &csv_number(value.paper),
            &csv_number(value.model),
            &csv_number(Some(value.live)),
            &value.by,
        ]);
    }
    text
}

impl Live {
    fn says_nothing(&self) -> bool {
        self.quick || self.machine.debug_build
    }
}

/// A chapter at the end of the page in Markdown.
pub(in super::super) fn markdown(live: &Live) -> String {
    let mut page =
        format!("\n## Live, on this machine\n\n{ABOUT}\n\n{}\n", live.machine.describe());
    if live.says_nothing() {
        let _ = write!(page, "\n**{WARNING}**\n");
    }
    for exhibit in &live.exhibits {
        let LiveExhibit { id, name, title, values } = exhibit;
        let _ = write!(page, "\n### Live: {name}: {title} ({id})\n\n");
        page.push_str(
            "| | | paper | model | **live** | by |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for LiveValue { row, column, paper, model, live, by } in values {
            let (paper, model) = (or_nothing(*paper), or_nothing(*model));
            let _ = writeln!(
                page,
                "| {row} | {column} | {paper} | {model} | **{}** | {by} |",
                number(*live)
            );
        }
    }
    if !live.absent.is_empty() {
        page.push_str("\n### Not measured\n\n");
        for absent in &live.absent {
            let _ = writeln!(page, "- {}: {}", absent.design, absent.reason);
        }
    }
    page
}

/// What belongs below an exhibit in HTML; nothing where nothing was measured for it.
pub(in super::super) fn html(live: &Live, id: &str) -> String {
    let Some(exhibit) = live.exhibits.iter().find(|exhibit| exhibit.id == id) else {
        return String::new();
    };
    let mut page = format!(
        "<details class=\"live\" open=\"open\">\n<summary><span class=\"badge\">live</span> on this \
         machine</summary>\n<p>{}</p>\n",
        escape(live.machine.describe())
    );
    if live.says_nothing() {
        let _ = writeln!(page, "<p class=\"off\">{}</p>", escape(WARNING));
    }
    page.push_str(
        "<div class=\"wide\"><table>\n<tr><th></th><th></th><th>paper</th><th>model</th>\
         <th>live</th><th>by</th></tr>\n",
    );
    for value in &exhibit.values {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
             <td class=\"number live\"><strong>{}</strong></td><td class=\"kind\">{}</td></tr>",
            escape(&value.row),
            escape(value.column),
            or_nothing(value.paper),
            or_nothing(value.model),
            number(value.live),
            escape(&value.by)
        );
    }
    let _ = writeln!(
        page,
        "</table></div>\n<p>File: <a href=\"{id}-live.csv\">{id}-live.csv</a></p>\n</details>"
    );
    page
}

/// What the page in HTML says at its beginning.
pub(in super::super) fn introduction(live: &Live) -> String {
    let mut text = format!(
        "<p><span class=\"badge\">live</span> {} {}</p>\n",
        escape(ABOUT),
        escape(live.machine.describe())
    );
    if !live.absent.is_empty() {
        text.push_str("<p>Not measured:</p>\n<ul>\n");
        for absent in &live.absent {
            let _ = writeln!(text, "<li>{}: {}</li>", absent.design, escape(&absent.reason));
        }
        text.push_str("</ul>\n");
    }
    text
}
