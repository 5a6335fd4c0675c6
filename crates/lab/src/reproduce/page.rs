//! All exhibits as one page of HTML that needs nothing else: no scripts, no network.
//!
//! It is well-formed XML, too, so that tests can see that every tag ends.
//!
//! What exhibits and their files are called.

use std::fmt::Write as _;

use nic_firmware_model::reproduce::exhibit::Score;
use nic_firmware_model::reproduce::report::{
    Chapter, Summary, error, number, per_million, share, stated,
};
use nic_firmware_model::reproduce::{Design, Exhibit, Note, Provenance, Value};

use super::live::{self, Live};
use crate::plot::svg::{self, escape};
use crate::plot::{Plot, WIDTH};

const LOOKS: &str = "\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem;background:#fff;color:#222}
a{color:#0b5cad}
h2{margin-top:3rem;border-bottom:1px solid #ccc}
h3{margin-top:2.2rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem}
th,td{border:1px solid #ccc;padding:.25rem .6rem;text-align:left;vertical-align:top}
td.number{text-align:right;white-space:nowrap}
.kind,.error{color:#666}
.off{color:#b3261e;font-weight:600}
.badge{background:#0b5cad;color:#fff;border-radius:.6rem;padding:.05rem .5rem;font-size:.8rem}
details.live{border-left:.25rem solid #0b5cad;padding-left:1rem;margin:1rem 0}
details.live summary{cursor:pointer}
td.live{background:#eaf3fc}
svg.plot{max-width:100%;min-width:40rem;height:auto}
nav li{margin:.1rem 0}
@media (prefers-color-scheme:dark){
body{background:#16181c;color:#ddd}
a{color:#7db7ff}
th,td,h2{border-color:#444}
.kind,.error{color:#999}
.off{color:#ff8a80}
.badge{background:#7db7ff;color:#16181c}
details.live{border-color:#7db7ff}
td.live{background:#1d2a3a}
}
@media print{.wide{overflow:visible}}
";

const INTRODUCTION: &str = "\
<p>Each table and figure of the four papers, from the model of their adapters. The diamonds \
in the plots, and what stands before each arrow in the tables, are what the paper&#39;s words \
and tables state; where a paper only draws a point, the model&#39;s value stands alone. \
<em>Given</em> values were put into the model, <em>fitted</em> ones constants were fitted to, <em>restated</em> ones follow from one input; all \
others it predicts. A prediction that is off by more than 15 % is red, and the words below it \
say what the model lacks.</p>
";

/// The page; with a plot for each exhibit of each chapter, in their order.
pub(crate) fn page(chapters: &[Chapter], plots: &[Vec<Plot>], live: Option<&Live>) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"generator\" content=\"landfall reproduce\"/>\n\
         <title>The papers, reproduced</title>\n<style>\n{LOOKS}{}.plot{{max-width:{WIDTH}px}}\n\
         </style>\n</head>\n<body>\n<h1>The papers, reproduced</h1>\n{INTRODUCTION}",
        svg::STYLE
    );
    if let Some(live) = live {
        page.push_str(&live::introduction(live));
    }
    summary(&mut page, chapters);
    contents(&mut page, chapters);
    for (chapter, plots) in chapters.iter().zip(plots) {
        let id = key(chapter.design);
        let _ = writeln!(page, "<h2 id=\"{id}\">{}</h2>", escape(chapter.title()));
        let ids = ids(chapter);
        for ((exhibit, plot), id) in chapter.exhibits.iter().zip(plots).zip(ids) {
            write_exhibit(&mut page, exhibit, plot, &id);
            if let Some(live) = live {
                page.push_str(&live::html(live, &id));
            }
        }
        constants(&mut page, chapter);
    }
    page + "</body>\n</html>\n"
}

/// How well each paper is met.
fn summary(page: &mut String, chapters: &[Chapter]) {
    let papers: Vec<&Chapter> = chapters.iter().filter(|it| it.design.is_some()).collect();
    if papers.is_empty() {
        return;
    }
    page.push_str(
        "<div class=\"wide\"><table>\n<tr><th>paper</th><th>given</th><th>fitted</th>\
         <th>restated</th><th>free constants</th><th>predicted</th><th>within 15 %</th>\
         <th>missed</th><th>median error</th><th>worst</th>\
         <th>worst, packets per million</th></tr>\n",
    );
    for chapter in papers {
        let of: Summary = chapter.summary();
        let _ = write!(page, "<tr><td>{}</td>", escape(chapter.title()));
        let cells = [
            of.given.to_string(),
            of.fitted.to_string(),
            of.restated.to_string(),
            of.free_constants.to_string(),
            of.predicted.to_string(),
            of.met.to_string(),
            of.missed.to_string(),
            share(of.median),
            share(of.worst),
            per_million(of.worst_per_million),
        ];
        for cell in cells {
            let _ = write!(page, "<td class=\"number\">{cell}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn contents(page: &mut String, chapters: &[Chapter]) {
    page.push_str("<nav>\n<ul>\n");
    for chapter in chapters {
        let (id, title) = (key(chapter.design), escape(chapter.title()));
        let _ = writeln!(page, "<li><a href=\"#{id}\">{title}</a>\n<ul>");
        for (exhibit, id) in chapter.exhibits.iter().zip(ids(chapter)) {
            let (name, title) = (escape(exhibit.name), escape(exhibit.title));
            let _ = writeln!(page, "<li><a href=\"#{id}\">{name}</a>: {title}</li>");
        }
        page.push_str("</ul></li>\n");
    }
    page.push_str("</ul>\n</nav>\n");
}

fn write_exhibit(page: &mut String, exhibit: &Exhibit, plot: &Plot, id: &str) {
    let (name, title) = (escape(exhibit.name), escape(exhibit.title));
    let _ = writeln!(page, "<section>\n<h3 id=\"{id}\">{name}: {title}</h3>");
    let _ = writeln!(page, "<div class=\"wide\">{}</div>", plot.inline());
    page.push_str("<div class=\"wide\"><table>\n<tr><th></th>");
    for column in &exhibit.columns {
        let _ = write!(page, "<th>{}</th>", escape(column));
    }
    page.push_str("</tr>\n");
    for row in &exhibit.rows {
        let _ = write!(page, "<tr><td>{}</td>", escape(&row.label));
        for value in &row.values {
            let _ = write!(page, "<td class=\"number\">{}</td>", cell(value));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n<ul>\n");
    for Note { about, text } in exhibit.notes() {
        let about = about.map_or_else(String::new, |row| format!("<em>{}</em>: ", escape(row)));
        let _ = writeln!(page, "<li>{about}{}</li>", with_code(text));
    }
    let _ = writeln!(
        page,
        "<li>Files: <a href=\"{id}.csv\">{id}.csv</a>, <a href=\"{id}.svg\">{id}.svg</a></li>\n\
         </ul>\n</section>"
    );
}

/// "paper → model (error)".
fn cell(value: &Value) -> String {
    let model = number(value.model);
    let (Some(paper), Some(error)) = (stated(value), error(value)) else { return model };
    let is_off = value.scored() == Some(Score::Missed);
    match value.standing {
        Provenance::Predicted => {
            let class = if is_off { "error off" } else { "error" };
            format!("{paper} → <strong>{model}</strong> <span class=\"{class}\">({error})</span>")
        }
        Provenance::Restated if is_off => {
            format!("{paper} → {model} <span class=\"error off\">(restated, {error})</span>")
        }
        standing => format!("{paper} → {model} <span class=\"kind\">({standing})</span>"),
    }
}

/// Markdown's backticks are all the markup that notes have.
fn with_code(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(escape).collect();
    let is_balanced = parts.len() % 2 == 1;
    if !is_balanced {
        return escape(text);
    }
    let parts = parts.into_iter().enumerate();
    parts.map(|(at, it)| if at % 2 == 1 { format!("<code>{it}</code>") } else { it }).collect()
}

fn constants(page: &mut String, chapter: &Chapter) {
    let id = key(chapter.design);
    let _ = writeln!(
        page,
        "<section>\n<h3 id=\"{id}-constants\">What the model is made of</h3>\n\
         <div class=\"wide\"><table>\n\
         <tr><th>constant</th><th>value</th><th>kind</th><th>from</th></tr>"
    );
    for it in &chapter.constants {
        let value = format!("{} {}", number(it.value), it.unit);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"kind\">{}</td><td>{}</td></tr>",
            with_code(it.name),
            escape(value.trim_end()),
            it.standing,
            with_code(it.source),
        );
    }
    let _ = writeln!(
        page,
        "</table></div>\n<p>File: <a href=\"{id}-constants.csv\">{id}-constants.csv</a></p>\n\
         </section>"
    );
}

/// What the command line calls a chapter.
pub(crate) fn key(design: Option<Design>) -> &'static str {
    match design {
        Some(Design::Stp) => "stp",
        Some(Design::Qpip) => "qpip",
        Some(Design::Defrag) => "defrag",
        Some(Design::Clan) => "clan",
        None => "beyond",
    }
}

/// A name for each exhibit, different from all others: "clan-figure-7". Where two have the
/// same name in a chapter, their titles tell them apart.
pub(crate) fn ids(chapter: &Chapter) -> Vec<String> {
    let exhibits = &chapter.exhibits;
    let id = |words: &str| format!("{}-{}", key(chapter.design), slug(words));
    let name = exhibits.iter().map(|exhibit| {
        let is_shared = exhibits.iter().filter(|other| other.name == exhibit.name).count() > 1;
        if is_shared {
            id(&format!("{} {}", exhibit.name, exhibit.title))
        } else {
            id(exhibit.name)
        }
    });
    name.collect()
}

/// In letters that every file system and every address takes.
fn slug(words: &str) -> String {
    let words: String = words
        .chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { ' ' },
        )
        .collect();
    words.split_whitespace().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_firmware_model::reproduce::Exhibit;

    #[test]
    fn backticks_are_code_where_they_have_partners() {
        assert_eq!(with_code("`write()` < `b`"), "<code>write()</code> &lt; <code>b</code>");
        assert_eq!(with_code("a ` b"), "a ` b");
    }

    #[test]
    fn what_is_far_off_is_marked() {
        assert!(cell(&Value::predicted(10.0, 12.0)).contains("off"));
        assert!(!cell(&Value::predicted(10.0, 11.0)).contains("off"));
        assert!(!cell(&Value::fitted(10.0, 12.0)).contains("off"));
        assert_eq!(cell(&Value::alone(3.0)), "3");
    }

    #[test]
    fn names_suit_file_systems() {
        assert_eq!(slug("Section 4.2.1, Figure 3"), "section-4-2-1-figure-3");
        assert_eq!(slug("../µ/\"x\""), "x");
    }

    #[test]
    fn equal_names_are_told_apart() {
        let exhibit = |title| Exhibit {
            design: Design::Stp,
            name: "STP",
            title,
            columns: Vec::new(),
            rows: Vec::new(),
            remarks: Vec::new(),
        };
        let exhibits = vec![exhibit("one"), exhibit("two")];
        let chapter =
            Chapter { design: None, exhibits, constants: Vec::new(), effects: Vec::new() };
        assert_eq!(ids(&chapter), ["beyond-stp-one", "beyond-stp-two"]);
    }
}
