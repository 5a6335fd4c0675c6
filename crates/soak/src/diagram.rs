//! [`diagram`]: a run as a sequence diagram, in SVG. Time goes down, each host has a line, each
//! frame is an arrow; one that did not arrive ends in a cross.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::net::at;
use crate::plan::Plan;
use crate::story::StoryLine;
use crate::world::run_with;

/// This many lines are drawn, the last before the end.
const MOST: usize = 160;
/// Between hosts, between lines, and around all.
const COLUMN: usize = 260;
const ROW: usize = 18;
const LEFT: usize = 130;
const TOP: usize = 60;
/// The longest text.
const LONGEST: usize = 140;

/// A line of the diagram.
enum Row {
    Arrow { at: String, from: u8, to: Option<u8>, what: String },
    Note { at: String, host: Option<u8>, what: String },
}

/// Runs a plan, and draws what happened before its end.
#[must_use]
pub fn diagram(plan: &Plan) -> String {
    let report = run_with(plan, true);
    let mut rows = rows(report.lines);
    rows.extend(report.wrong.iter().map(|wrong| Row::Note {
        at: String::new(),
        host: None,
        what: format!("WRONG: {wrong}"),
    }));
    let rows = &rows[rows.len().saturating_sub(MOST)..];
    draw(plan, rows)
}

/// Frames that left, each with where it arrived first, and notes between them.
fn rows(lines: Vec<StoryLine>) -> Vec<Row> {
    // In which order the same bytes arrive: the first departure has the first arrival.
    let mut arrivals: HashMap<u64, Vec<u8>> = HashMap::new();
    for line in lines.iter().rev() {
        if let StoryLine::Arrived { host, hash, .. } = line {
            arrivals.entry(*hash).or_default().push(*host);
        }
    }
    let rows = lines.into_iter().filter_map(|line| {
        Some(match line {
            StoryLine::Sent { at: now, host, what, hash } => {
                let to = arrivals.get_mut(&hash).and_then(Vec::pop);
                Row::Arrow { at: at(now), from: host, to, what }
            }
            StoryLine::Note { at: now, host, what } => Row::Note { at: at(now), host, what },
            StoryLine::Arrived { .. } => return None,
        })
    });
    rows.collect()
}

fn draw(plan: &Plan, rows: &[Row]) -> String {
    let hosts: Vec<u8> = (0..plan.hosts).filter(|host| plan.uses(*host)).collect();
    let column = |host: u8| {
        let at = hosts.iter().position(|known| *known == host).unwrap_or(0);
        LEFT + at * COLUMN + 20
    };
    let (width, height) = (LEFT + hosts.len().max(3) * COLUMN, TOP + (rows.len() + 1) * ROW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"20\">seed {}, {} steps</text>",
        plan.seed,
        plan.steps.len()
    );
    for host in &hosts {
        let x = column(*host);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"40\">host {host}</text>");
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" y1=\"46\" x2=\"{x}\" y2=\"{height}\" stroke=\"#bbb\"/>"
        );
    }
    for (n, row) in rows.iter().enumerate() {
        draw_row(&mut svg, row, TOP + n * ROW, &column);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_row(svg: &mut String, row: &Row, y: usize, column: &impl Fn(u8) -> usize) {
    let (at, text_x, text, color) = match row {
        Row::Arrow { at, from, to, what } => {
            let x1 = column(*from);
            let (x2, color) = match to {
                Some(to) => (column(*to), "#246"),
                None => (x1 + COLUMN / 3, "#b50"),
            };
            let _ = writeln!(
                svg,
                "<line x1=\"{x1}\" y1=\"{y}\" x2=\"{x2}\" y2=\"{y}\" stroke=\"{color}\"/>"
            );
            let head = match to {
                Some(_) if x2 > x1 => format!("{},{} {x2},{y} {},{}", x2 - 6, y - 3, x2 - 6, y + 3),
                Some(_) => format!("{},{} {x2},{y} {},{}", x2 + 6, y - 3, x2 + 6, y + 3),
                None => format!(
                    "{},{} {},{} {x2},{y} {},{} {},{}",
                    x2 - 4,
                    y - 4,
                    x2 + 4,
                    y + 4,
                    x2 - 4,
                    y + 4,
                    x2 + 4,
                    y - 4
                ),
            };
            let _ = writeln!(svg, "<polyline points=\"{head}\" fill=\"none\" stroke=\"{color}\"/>");
            (at, x1.min(x2) + 10, what, color)
        }
        Row::Note { at, host, what } => {
            let color = if what.starts_with("WRONG") { "#c00" } else { "#060" };
            (at, host.map_or(LEFT, |host| column(host) + 6), what, color)
        }
    };
    let text: String = text.chars().take(LONGEST).collect();
    let _ = writeln!(svg, "<text x=\"4\" y=\"{y}\" fill=\"#888\">{at}</text>");
    let y = y - 3;
    let _ =
        writeln!(svg, "<text x=\"{text_x}\" y=\"{y}\" fill=\"{color}\">{}</text>", escaped(&text));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
