//! Whether a text is well-formed XML: as much of that as this program writes.

/// A start tag, with what its attributes hold, still escaped.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
}

/// All elements in their order, or what is wrong.
pub(crate) fn check(text: &str) -> Result<Vec<Element>, String> {
    let (mut open, mut elements) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start])?;
        rest = &rest[start..];
        let end = rest.find('>').ok_or("a tag without an end")?;
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with("!doctype") {
            if !elements.is_empty() {
                return Err(format!("{tag} after the beginning"));
            }
        } else if let Some(name) = tag.strip_prefix('/') {
            let opened: Option<String> = open.pop();
            if opened.as_deref() != Some(name) {
                return Err(format!("</{name}> ends {opened:?}"));
            }
        } else {
            if open.is_empty() && !elements.is_empty() {
                return Err(format!("a second root: <{tag}>"));
            }
            let element = element(tag.trim_end_matches('/'))?;
            if !tag.ends_with('/') {
                open.push(element.name.clone());
            }
            elements.push(element);
        }
    }
    if !open.is_empty() || !rest.trim().is_empty() || elements.is_empty() {
        return Err(format!("the end is missing: {open:?}, {rest:?}"));
    }
    Ok(elements)
}

/// Every number in an attribute of a shape is one, and finite.
pub(crate) fn check_numbers(elements: &[Element]) -> Result<(), String> {
    const ONE: [&str; 11] = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"];
    for Element { name, attributes } in elements {
        for (key, value) in attributes {
            let several = key == "points" || key == "viewBox";
            if !several && !ONE.contains(&key.as_str()) {
                continue;
            }
            for number in value.split([' ', ',']) {
                match number.parse::<f64>() {
                    Ok(number) if number.is_finite() => {}
                    _ => return Err(format!("{name} {key}={value:?}")),
                }
            }
        }
    }
    Ok(())
}

fn element(tag: &str) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c))
    };
    if !is_name(name) {
        return Err(format!("<{tag}> has no name"));
    }
    let mut attributes: Vec<(String, String)> = Vec::new();
    while !rest.trim().is_empty() {
        let parts = rest.split_once("=\"").and_then(|(key, rest)| {
            let (value, rest) = rest.split_once('"')?;
            Some((key.trim(), value, rest))
        });
        let (key, value, after) = parts.ok_or_else(|| format!("attributes of <{tag}>"))?;
        if !is_name(key) || attributes.iter().any(|(before, _)| before == key) {
            return Err(format!("attribute {key} of <{tag}>"));
        }
        check_text(value)?;
        attributes.push((key.to_owned(), value.to_owned()));
        rest = after;
    }
    Ok(Element { name: name.to_owned(), attributes })
}

/// Nothing in it is markup, but the few entities that every reader knows.
fn check_text(text: &str) -> Result<(), String> {
    const KNOWN: [&str; 5] = ["amp;", "lt;", "gt;", "quot;", "#39;"];
    if let Some(bad) = text.chars().find(|c| "<>".contains(*c) || c.is_control() && *c != '\n') {
        return Err(format!("{bad:?} in {text:?}"));
    }
    for entity in text.split('&').skip(1) {
        if !KNOWN.iter().any(|known| entity.starts_with(known)) {
            return Err(format!("&{entity} is no entity"));
        }
    }
    Ok(())
}
