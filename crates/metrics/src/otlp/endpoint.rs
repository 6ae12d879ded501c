//! Where metrics are pushed to, and the headers that go with them.

use std::{fmt, str::FromStr};

use ureq::http::{HeaderName, HeaderValue, Uri};

/// The path at which a collector takes metrics.
const PATH: &str = "/v1/metrics";
/// The port at which collectors take OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

/// The URL of a receiver of OTLP over HTTP. One without a path has `/v1/metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Uri);

impl Endpoint {
    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }

    /// Returns what to look at if no such receiver answers, if the port gives a reason.
    pub(super) fn hint(&self) -> &'static str {
        match self.0.port_u16() {
            Some(GRPC_PORT) => "; port 4317 is for OTLP over gRPC, as a rule, and 4318 for OTLP over HTTP",
            _ => "",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Endpoint, &'static str> {
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(FORM);
        };
        if authority.as_str().contains('@') {
            return Err("others on this host can read arguments: give user or password as a header, in the file of \
                 --otlp-headers");
        }
        let has_port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || has_port && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(FORM);
        }
        if uri.path() != "/" {
            return Ok(Endpoint(uri));
        }
        let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
        let mut parts = uri.into_parts();
        parts.path_and_query = format!("{PATH}{query}").parse().ok();
        Uri::from_parts(parts).map(Endpoint).map_err(|_| FORM)
    }
}

const FORM: &str = "write where OTLP is received over HTTP, http://HOST:PORT or https://HOST:PORT, as in \
    http://127.0.0.1:4318; without a path, /v1/metrics is added";

/// Headers of each request, which may be secret.
#[derive(Debug, Clone, Default)]
pub struct Headers(Vec<(HeaderName, HeaderValue)>);

impl Headers {
    /// Returns names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl FromStr for Headers {
    type Err = String;

    /// Reads a line `NAME: VALUE` per header; empty lines and those that begin with `#` say nothing. An error names the
    /// line, and not what stands there.
    fn from_str(text: &str) -> Result<Headers, String> {
        let lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let headers = lines.map(|(line, number)| {
            let header = line.split_once(':').and_then(|(name, value)| {
                let mut value: HeaderValue = value.trim().parse().ok()?;
                value.set_sensitive(true);
                Some((name.trim_end().parse().ok()?, value))
            });
            header.ok_or_else(|| format!("line {number} is not a header: write NAME: VALUE"))
        });
        headers.collect::<Result<_, _>>().map(Headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_gets_that_of_metrics() {
        for (text, want) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
            ("https://otel.example/", "https://otel.example/v1/metrics"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
            ("http://[::1]/?tenant=a", "http://[::1]/v1/metrics?tenant=a"),
            ("http://db:9090/api/v1/otlp/v1/metrics", "http://db:9090/api/v1/otlp/v1/metrics"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), want, "{text}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_the_form() {
        for text in ["", "localhost", "localhost:4318", "/v1/metrics", "grpc://a:4317", "http://", "http://:4318"] {
            assert_eq!(text.parse::<Endpoint>(), Err(FORM), "{text}");
        }
        for text in ["http://a:0", "http://a:port", "http://a:70000", "http://a b"] {
            assert_eq!(text.parse::<Endpoint>(), Err(FORM), "{text}");
        }
        assert!("http://me:secret@a:4318".parse::<Endpoint>().unwrap_err().contains("--otlp-headers"));
    }

    #[test]
    fn headers_are_lines_and_no_error_shows_a_value() {
        let headers: Headers = "# of the tenant\n\nAuthorization: Bearer a:b\r\nX-Scope-OrgID:1\n".parse().unwrap();
        let shown: Vec<_> = headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        assert_eq!(shown, ["authorization=Bearer a:b", "x-scope-orgid=1"]);
        assert!(!format!("{headers:?}").contains("Bearer"));
        for wrong in ["a: b\nsecret", "a: b\nsec ret: c", "a: b\nsecret: \u{1}"] {
            assert_eq!(wrong.parse::<Headers>().unwrap_err(), "line 2 is not a header: write NAME: VALUE");
        }
    }
}
