//! The request line of HTTP/1 (RFC 9112 section 3): method and path.
//!
//! A library such as httparse gives no target before its end has come. Here a request that was captured in part has a label
//! too, and no more than the first line is read.

use std::sync::Arc;

use super::text;

/// The methods of RFC 9110 section 9.3, and PATCH of RFC 5789.
pub(super) const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Reads the beginning of a request. `None` if it is not one.
///
/// What follows the path is left out, because it often holds secrets: a query, a fragment, and parameters after a semicolon,
/// such as IDs of sessions. Of a target with an authority the path is left, and of CONNECT host and port.
pub(super) fn request(bytes: &[u8]) -> Option<Arc<str>> {
    let method = METHODS.into_iter().find(|method| {
        bytes.strip_prefix(method.as_bytes()).is_some_and(|rest| rest.first().is_some_and(|byte| *byte == b' '))
    })?;
    let rest = &bytes[method.len() + 1..];
    let end = rest.iter().position(u8::is_ascii_whitespace);
    let target = &rest[..end.unwrap_or(rest.len())];
    if let Some(end) = end
        && !begins_alike(&rest[end..], b" HTTP/1.")
    {
        return None;
    }
    // What is cut off may tell where a password ends.
    if end.is_none() && (method == "CONNECT" || begins_with_scheme(target)) {
        return None;
    }
    let (path, is_whole) = path(method, target)?;
    Some(text::label(method, path, end.is_none() && is_whole))
}

/// Returns the part of a target that is shown, and whether it goes on to the target's end.
fn path<'a>(method: &str, target: &'a [u8]) -> Option<(&'a [u8], bool)> {
    let after = |bytes: &'a [u8], mark: &[u8]| {
        bytes.windows(mark.len()).position(|window| window == mark).map(|at| &bytes[at + mark.len()..])
    };
    if method == "CONNECT" {
        // A password may have an @ too.
        let host = target.rsplit(|byte| *byte == b'@').next().unwrap_or(target);
        return (!host.is_empty()).then_some((host, true));
    }
    let path = match target {
        [b'/', ..] => target,
        b"*" if method == "OPTIONS" => target,
        _ if begins_with_scheme(target) => {
            let authority = after(target, b"://")?;
            match authority.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')) {
                // What follows may be the rest of a password.
                Some(at) if authority[at..].contains(&b'@') => return None,
                Some(at) if authority[at] == b'/' => &authority[at..],
                _ => b"/",
            }
        }
        _ => return None,
    };
    let shown = without_query(path);
    Some((shown, shown.len() == path.len()))
}

/// Returns a path without what often holds secrets.
pub(super) fn without_query(path: &[u8]) -> &[u8] {
    &path[..path.iter().position(|byte| matches!(byte, b'?' | b'#' | b';')).unwrap_or(path.len())]
}

fn begins_with_scheme(target: &[u8]) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes())))
}

/// Whether what was captured of `bytes` does not contradict that they begin like `start`.
fn begins_alike(bytes: &[u8], start: &[u8]) -> bool {
    bytes.iter().zip(start).all(|(byte, expected)| byte == expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &str) -> Option<String> {
        request(bytes.as_bytes()).as_deref().map(str::to_owned)
    }

    #[test]
    fn a_request_has_its_method_and_path() {
        for (bytes, label) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /"),
            ("POST /api/v1/users HTTP/1.0\r\n", "POST /api/v1/users"),
            ("OPTIONS * HTTP/1.1\r\n", "OPTIONS *"),
            ("CONNECT db.example:443 HTTP/1.1\r\n", "CONNECT db.example:443"),
            ("CONNECT user:p@ss@db.example:443 HTTP/1.1\r\n", "CONNECT db.example:443"),
            ("GET http://a.example/x HTTP/1.1\r\n", "GET /x"),
            ("GET http://user:p@ss@a.example/x HTTP/1.1\r\n", "GET /x"),
            ("GET HTTP://a.example HTTP/1.1\r\n", "GET /"),
            // Cut by the capture.
            ("GET /abc", "GET /abc…"),
            ("GET /abc HT", "GET /abc"),
        ] {
            assert_eq!(read(bytes).as_deref(), Some(label), "{bytes}");
        }
    }

    #[test]
    fn secrets_are_left_out() {
        for target in [
            "/login?password=secret",
            "/login#secret",
            "/login;jsessionid=secret",
            "http://user:secret@a.example/login",
            "https://user:secret@a.example/login?secret",
            "/login?secret",
        ] {
            let whole = read(&format!("GET {target} HTTP/1.1\r\nCookie: secret\r\n"));
            assert_eq!(whole.unwrap().trim_end_matches('…'), "GET /login", "{target}");
            let cut = read(&format!("GET {target}"));
            let cut = cut.as_deref().map(|label| label.trim_end_matches('…'));
            // What is cut off may be the rest of a password.
            assert_eq!(cut, target.starts_with('/').then_some("GET /login"), "{target}");
        }
        assert_eq!(read("GET http://a?secret HTTP/1.1\r\n").as_deref(), Some("GET /"));
        assert_eq!(read("CONNECT secret@a:1 HTTP/1.1\r\n").as_deref(), Some("CONNECT a:1"));
    }

    #[test]
    fn what_is_no_request_has_no_label() {
        for bytes in [
            "",
            "GET",
            "GET ",
            "get / HTTP/1.1\r\n",
            "GET secret HTTP/1.1\r\n",
            "GET /is this a book?",
            "GETS / HTTP/1.1",
            "HTTP/1.1 200 OK\r\n",
            "GET /\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "GET / HTTP/2\r\n",
            // Where the password ends is not known.
            "GET http://user:pa/ss@a.example/x HTTP/1.1\r\n",
            "GET http://user:pa/s?s@a.example/x HTTP/1.1\r\n",
            "GET http://user:pa/ss",
            "GET http://user",
            "CONNECT user:passw",
            "CONNECT user:p@ssw",
            "CONNECT ",
        ] {
            assert_eq!(read(bytes), None, "{bytes}");
        }
    }
}
