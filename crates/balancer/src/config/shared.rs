//! `[shared]`: the store through which the balancers of the same VIPs agree on weights.

use std::{
    fmt, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
    str::FromStr,
};

use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use toml::de::DeValue;

use super::{
    check::certificates,
    table::{Problem, Table},
    value::{kind_problem, plain_name, text},
};

/// The store through which the balancers of the same VIPs agree on weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSettings {
    /// The servers of etcd, of which each has everything.
    pub endpoints: Vec<StoreUrl>,
    /// DER certificates of the authorities that vouch for the servers; none for those of the host.
    pub authorities: Option<Vec<Vec<u8>>>,
    /// What the balancer proves its identity with; none if the servers do not ask for it.
    pub identity: Option<StoreIdentity>,
    /// What all keys of these balancers begin with; ends with a slash.
    pub prefix: String,
    /// The name of this balancer, which no other one of the prefix has.
    pub name: String,
    /// The user and the password to log in with, if the store asks for them.
    pub login: Option<(String, Secret<String>)>,
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The certificate and those that lead to its authority, in DER.
    pub certificates: Vec<Vec<u8>>,
    /// The key, in PEM.
    pub key: Secret<String>,
}

/// What must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(pub T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The address of a server of etcd: `https://HOST:PORT`, or `http://` without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Whether the server is spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.0.starts_with("https:")
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for StoreUrl {
    type Err = ();

    fn from_str(text: &str) -> Result<StoreUrl, ()> {
        let uri: ureq::http::Uri = text.parse().map_err(drop)?;
        let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(());
        };
        let is_plain = !authority.as_str().contains('@') && !authority.host().is_empty();
        if !is_plain || authority.port_u16().is_none_or(|port| port == 0) || !matches!(uri.path(), "" | "/") {
            return Err(());
        }
        Ok(StoreUrl(text.trim_end_matches('/').to_owned()))
    }
}

/// The greatest number of endpoints.
const MOST_ENDPOINTS: usize = 16;
/// The greatest length of a prefix.
const MOST_PREFIX_BYTES: usize = 256;
/// The greatest size of the file of the password.
const MOST_PASSWORD_BYTES: u64 = 4096;
/// The most backends that balancers can agree on, in all VIPs together: the report of as many fits into a value of etcd.
pub const MOST_BACKENDS: usize = 3_000;
const EXAMPLE: &str = "[\"https://10.0.0.5:2379\"]";

impl SharedSettings {
    /// Reads the table. Files are looked up next to the configuration at `path`; `backends` is the number of backends of
    /// all VIPs.
    pub(super) fn read(parent: &mut Table<'_>, path: &Path, backends: usize) -> Option<SharedSettings> {
        let mut table = parent.table("shared")?;
        let beside = |file: String| path.parent().unwrap_or(Path::new("")).join(file);
        let endpoints = table.require("endpoints", EXAMPLE, endpoints).unwrap_or_default();
        let ca = table.get("ca", text).map(beside);
        let authorities = ca.and_then(|file| noted(&table, "ca", certificates(&file)));
        let [certificate, key] = ["certificate", "key"].map(|name| table.get(name, text).map(beside));
        let identity = read_identity(&table, certificate.as_deref(), key.as_deref());
        let user = table.get("user", plain_name);
        let password = table.get("password_file", text).map(beside);
        let login = read_login(&table, user, password.as_deref());
        let settings = SharedSettings {
            endpoints,
            authorities,
            identity,
            prefix: table.get("prefix", prefix).unwrap_or_else(|| "/dwell/lb/".into()),
            name: table.get("name", plain_name).unwrap_or_else(|| host_name(&table)),
            login,
        };
        let has_tls = settings.endpoints.iter().any(StoreUrl::is_tls);
        for key in ["ca", "certificate"] {
            if !has_tls && table.has(key) {
                let problem = Problem::new("no endpoint is spoken to over TLS", "write https:// in endpoints");
                table.fault(problem, key);
            }
        }
        if backends > MOST_BACKENDS {
            let problem = Problem::new(
                format!("there are {backends} backends, and balancers can agree on {MOST_BACKENDS}"),
                "share out the VIPs among several groups of balancers",
            );
            table.fault(problem, "endpoints");
        }
        table.finish();
        Some(settings)
    }
}

fn endpoints(value: &DeValue<'_>) -> Result<Vec<StoreUrl>, Problem> {
    let remedy = || format!("write the servers of etcd, as in {EXAMPLE}");
    let DeValue::Array(array) = value else {
        return Err(kind_problem(value, "a list of addresses", EXAMPLE));
    };
    let url = |value: &DeValue<'_>| {
        let text = text(value)?;
        text.parse()
            .map_err(|()| Problem::new("an entry is not the address of a server (users go into shared.user)", remedy()))
    };
    let urls: Vec<StoreUrl> = array.iter().map(|entry| url(entry.get_ref())).collect::<Result<_, _>>()?;
    match urls.len() {
        1..=MOST_ENDPOINTS => Ok(urls),
        0 => Err(Problem::new("it is empty", remedy())),
        more => Err(Problem::new(format!("{more} are too many"), format!("write at most {MOST_ENDPOINTS}"))),
    }
}

fn prefix(value: &DeValue<'_>) -> Result<String, Problem> {
    let prefix = text(value)?;
    if prefix.len() > MOST_PREFIX_BYTES || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
        let remedy = format!("write at most {MOST_PREFIX_BYTES} letters, digits and punctuation marks");
        return Err(Problem::new("it is not a prefix of keys", remedy));
    }
    Ok(if prefix.ends_with('/') { prefix } else { prefix + "/" })
}

/// Returns the name of this host, which distinguishes balancers by default.
fn host_name(table: &Table<'_>) -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let name = name.and_then(|name| plain_name(&DeValue::String(name.into())).ok());
    name.unwrap_or_else(|| {
        let problem = Problem::new("it is missing, and the host's name does not do", "write name = \"lb1\"");
        table.fault(problem, "name");
        String::new()
    })
}

fn read_identity(table: &Table<'_>, certificate: Option<&Path>, key: Option<&Path>) -> Option<StoreIdentity> {
    let (certificate, key) = both(table, ["certificate", "key"], certificate, key)?;
    let chain = noted(table, "certificate", certificates(certificate));
    let key = noted(
        table,
        "key",
        closed(key, u64::MAX).and_then(|pem| {
            let parsed = PrivateKeyDer::from_pem_slice(pem.as_bytes());
            let problem =
                |_| Problem::new(format!("'{}' contains no key", key.display()), "name a file of a key in PEM");
            parsed.map(|_| pem).map_err(problem)
        }),
    );
    Some(StoreIdentity { certificates: chain?, key: Secret(key?) })
}

fn read_login(table: &Table<'_>, user: Option<String>, password: Option<&Path>) -> Option<(String, Secret<String>)> {
    let (user, password) = both(table, ["user", "password_file"], user, password)?;
    let password = noted(table, "password_file", closed(password, MOST_PASSWORD_BYTES))?;
    Some((user, Secret(password.trim_end_matches(['\r', '\n']).to_owned())))
}

/// Returns two values that are of use together only.
fn both<A, B>(table: &Table<'_>, keys: [&'static str; 2], first: Option<A>, second: Option<B>) -> Option<(A, B)> {
    let [has_first, has_second] = keys.map(|key| table.has(key));
    if has_first != has_second {
        let [there, missing] = if has_first { keys } else { [keys[1], keys[0]] };
        let problem = Problem::new(format!("it is missing, but {there} is there"), format!("write {missing} too"));
        table.fault(problem, missing);
    }
    first.zip(second)
}

/// Reads a file that only its owner and group can reach.
fn closed(file: &Path, most_bytes: u64) -> Result<String, Problem> {
    let read = |file: &Path| -> io::Result<(u32, String)> {
        let opened = fs::File::open(file)?;
        let mode = opened.metadata()?.permissions().mode();
        let mut text = String::new();
        opened.take(most_bytes.saturating_add(1)).read_to_string(&mut text)?;
        Ok((mode, text))
    };
    match read(file) {
        Err(io) => {
            let remedy = "name a file that the user of dwell can read";
            Err(Problem::new(format!("cannot read '{}': {io}", file.display()), remedy))
        }
        Ok((_, text)) if text.len() as u64 > most_bytes => {
            let problem = format!("'{}' has more than {most_bytes} bytes", file.display());
            Err(Problem::new(problem, "name the file that has this alone"))
        }
        Ok((mode, _)) if mode & 0o007 != 0 => {
            Err(Problem::new(format!("every user of this host can reach '{}'", file.display()), "chmod 600 it"))
        }
        Ok((_, text)) => Ok(text),
    }
}

/// Adds the problem of a key, if there is one.
fn noted<T>(table: &Table<'_>, key: &str, read: Result<T, Problem>) -> Option<T> {
    read.map_err(|problem| table.fault(problem, key)).ok()
}
