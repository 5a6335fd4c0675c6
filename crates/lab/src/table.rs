//! One writer of tables: in boxes for people, and as CSV for programs.

use std::fmt::{self, Display, Formatter};

use comfy_table::{CellAlignment, TableStyle, presets};

/// A table for people: words in its first columns, figures aligned to the right in the others.
///
/// ```
/// use landfall_lab::table::Table;
///
/// let mut table = Table::new(["", "GB/s"]);
/// table.row(["tcp", "2.96"]).row(["stp/udp", "5.10"]);
/// assert!(table.to_string().contains("│ stp/udp ┆ 5.10 │"));
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    words: usize,
}

impl Table {
    /// An empty table under these headings.
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { header: strings(header), rows: Vec::new(), words: 1 }
    }

    /// Says how many columns hold words: one, unless this says otherwise.
    #[must_use]
    pub fn with_words(self, columns: usize) -> Self {
        Self { words: columns, ..self }
    }

    /// The table in Markdown, as pages have it.
    ///
    /// ```
    /// use landfall_lab::table::Table;
    ///
    /// let mut table = Table::new(["", "GB/s"]);
    /// table.row(["stp/udp", "5.10"]);
    /// assert!(table.markdown().contains("| stp/udp | 5.10 |"));
    /// ```
    #[must_use]
    pub fn markdown(&self) -> String {
        self.drawn(presets::ASCII_MARKDOWN)
    }

    fn drawn(&self, style: TableStyle) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(style);
        table.set_header(&self.header).add_rows(&self.rows);
        for column in table.column_iter_mut().skip(self.words) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) -> &mut Self {
        self.rows.push(strings(cells));
        self
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.drawn(presets::UTF8_FULL_CONDENSED).fmt(f)
    }
}

fn strings(cells: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    cells.into_iter().map(Into::into).collect()
}

/// One record of a CSV file (RFC 4180), quoted where it must be, with its end of line.
///
/// ```
/// use landfall_lab::table::csv_record;
///
/// assert_eq!(csv_record(["a, b", "4"]), "\"a, b\",4\r\n");
/// ```
pub fn csv_record<T: AsRef<str>>(fields: impl IntoIterator<Item = T>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|text| csv_field(text.as_ref())).collect();
    fields.join(",") + "\r\n"
}

fn csv_field(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A number for CSV, as exact as it is; empty where there is none.
#[must_use]
pub fn csv_number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(String::new, |value| value.to_string())
}
