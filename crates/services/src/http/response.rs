//! Which answer a request gets: conditions, ranges, redirects, errors (RFC 9110).

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rustix::io::Errno;
use tokio::task::spawn_blocking;

use super::body::Body;
use super::range::{Wanted, wanted};
use super::site::{Found, Lookup, OpenFile, Site};
use super::target::{Refused, Target};
use super::{listing, media_type};

/// Answers a request: here where the kernel has in memory what is asked for, else on a thread
/// that may block.
pub(super) async fn answer(
    site: Arc<Site>,
    request: Request<hyper::body::Incoming>,
) -> Response<Body> {
    let (head, _) = request.into_parts();
    let sends_body = head.method != Method::HEAD;
    if sends_body && head.method != Method::GET {
        let mut response = failure(StatusCode::METHOD_NOT_ALLOWED, true);
        set(&mut response, header::ALLOW, "GET, HEAD");
        return response;
    }
    let target = match Target::parse(head.uri.path()) {
        Ok(target) => target,
        Err(Refused::Malformed) => return failure(StatusCode::BAD_REQUEST, sends_body),
        Err(Refused::Impossible) => return failure(StatusCode::NOT_FOUND, sends_body),
        Err(Refused::Escapes) => return failure(StatusCode::FORBIDDEN, sends_body),
    };
    let query = head.uri.query().map(str::to_owned);
    let file_request = FileRequest { target, query, fields: head.headers, sends_body };
    if let Ok(response) = file_request.answer(&site, Lookup::Cached) {
        return response;
    }
    let work = move || file_request.answer(&site, Lookup::Blocking);
    let answered = spawn_blocking(work).await.map_err(io::Error::other).flatten();
    answered.unwrap_or_else(|_| failure(StatusCode::INTERNAL_SERVER_ERROR, sends_body))
}

/// What a request asks for.
struct FileRequest {
    target: Target,
    query: Option<String>,
    fields: HeaderMap,
    sends_body: bool,
}

impl FileRequest {
    /// The answer. With [`Lookup::Cached`] an error where that does not do.
    fn answer(&self, site: &Site, lookup: Lookup) -> io::Result<Response<Body>> {
        let Self { target, sends_body, .. } = self;
        let found = match site.find(target, lookup) {
            // The reason may be that something is not in memory.
            Err(why) if lookup == Lookup::Cached => return Err(why.into()),
            found => found,
        };
        Ok(match found {
            Ok(Found::File(file)) => {
                return file_response(file, &self.fields, *sends_body, lookup);
            }
            Ok(Found::FolderWithoutSlash) => {
                let query = self.query.as_ref().map(|query| format!("?{query}"));
                let location = target.folder_path() + &query.unwrap_or_default();
                let mut response = failure(StatusCode::MOVED_PERMANENTLY, *sends_body);
                set(&mut response, header::LOCATION, &location);
                response
            }
            Ok(Found::Folder(_)) if !site.lists() => failure(StatusCode::FORBIDDEN, *sends_body),
            // To read a folder may block.
            Ok(Found::Folder(_)) if lookup == Lookup::Cached => {
                return Err(Errno::AGAIN.into());
            }
            Ok(Found::Folder(folder)) => match listing::page(folder, target) {
                Ok(page) => {
                    let kind = "text/html; charset=utf-8";
                    text_response(StatusCode::OK, page, kind, *sends_body)
                }
                Err(why) => failure(status_of(why), *sends_body),
            },
            Err(why) => failure(status_of(why), *sends_body),
        })
    }
}

fn status_of(why: Errno) -> StatusCode {
    match why {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => StatusCode::NOT_FOUND,
        // The last two are what the kernel says of a link that leads out, or in circles.
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP => StatusCode::FORBIDDEN,
        // A socket, or a device without a driver.
        Errno::NXIO | Errno::NODEV => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn file_response(
    file: OpenFile,
    fields: &HeaderMap,
    sends_body: bool,
    lookup: Lookup,
) -> io::Result<Response<Body>> {
    if is_refused(&file, fields) {
        return Ok(failure(StatusCode::PRECONDITION_FAILED, sends_body));
    }
    let mut response = Response::new(Body::empty());
    describe(&mut response, &file);
    if is_unchanged(&file, fields) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let range = field(fields, header::RANGE).filter(|_| sends_body && is_current(&file, fields));
    let part = match range.map_or(Wanted::Whole, |range| wanted(range, file.len)) {
        Wanted::Whole => 0..file.len,
        Wanted::Part(part) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = format!("bytes {}-{}/{}", part.start, part.end - 1, file.len);
            set(&mut response, header::CONTENT_RANGE, &range);
            part
        }
        Wanted::Nothing => {
            let mut response = failure(StatusCode::RANGE_NOT_SATISFIABLE, sends_body);
            set(&mut response, header::CONTENT_RANGE, &format!("bytes */{}", file.len));
            return Ok(response);
        }
    };
    set(&mut response, header::CONTENT_TYPE, media_type::of(&file.name));
    set(&mut response, header::CONTENT_LENGTH, &(part.end - part.start).to_string());
    if sends_body {
        *response.body_mut() = Body::file(file.file, part.start, part.end - part.start, lookup)?;
    }
    Ok(response)
}

/// What tells a client whether its copy is current.
fn describe(response: &mut Response<Body>, file: &OpenFile) {
    set(response, header::ETAG, &file.tag);
    // One from the future would be refused (RFC 9110, section 8.8.2.1), and some dates of a file
    // cannot be written.
    let modified = file.modified.min(SystemTime::now()).max(SystemTime::UNIX_EPOCH);
    set(response, header::LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    set(response, header::ACCEPT_RANGES, "bytes");
    set(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
}

/// The client wants it only in a state that it is not in.
fn is_refused(file: &OpenFile, fields: &HeaderMap) -> bool {
    if let Some(tags) = field(fields, header::IF_MATCH) {
        return !has_tag(tags, &file.tag, false);
    }
    date(fields, header::IF_UNMODIFIED_SINCE).is_some_and(|date| file.modified > date)
}

/// The client's copy is current.
fn is_unchanged(file: &OpenFile, fields: &HeaderMap) -> bool {
    if let Some(tags) = field(fields, header::IF_NONE_MATCH) {
        return has_tag(tags, &file.tag, true);
    }
    date(fields, header::IF_MODIFIED_SINCE).is_some_and(|date| file.modified <= date)
}

/// The part that a client wants belongs to the state that it knows.
fn is_current(file: &OpenFile, fields: &HeaderMap) -> bool {
    let Some(text) = field(fields, header::IF_RANGE) else { return true };
    // A date is exact to a second only, so it has to be the very same.
    text == file.tag || date(fields, header::IF_RANGE).is_some_and(|date| date == file.modified)
}

/// Is the tag among these? Where weak ones count, what is behind `W/` is compared.
fn has_tag(list: &str, tag: &str, weak: bool) -> bool {
    // Our tags have no comma.
    list.split(',').map(str::trim).any(|one| {
        one == "*" || one == tag || (weak && one.strip_prefix("W/").is_some_and(|one| one == tag))
    })
}

fn field(fields: &HeaderMap, name: HeaderName) -> Option<&str> {
    fields.get(name).and_then(|value| value.to_str().ok())
}

fn date(fields: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    field(fields, name).and_then(|text| httpdate::parse_http_date(text).ok())
}

/// A short answer that says what is wrong.
fn failure(status: StatusCode, sends_body: bool) -> Response<Body> {
    let text = format!("{status}\n");
    text_response(status, text, "text/plain; charset=utf-8", sends_body)
}

fn text_response(status: StatusCode, text: String, kind: &str, sends_body: bool) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, kind);
    set(&mut response, header::CONTENT_LENGTH, &text.len().to_string());
    if sends_body {
        *response.body_mut() = Body::text(text);
    }
    response
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    // Everything that is set here is visible ASCII, but for a query that a client sent.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
