//! `heavy_share`: the part of a server's packets that its heavy connections should carry.

use std::path::Path;

use dwell_balancer::config::{Config, ConfigError};

fn parse(keys: &str) -> Result<Option<f64>, String> {
    let text = format!(
        "interface = \"eth0\"\n[[vip]]\nname = \"h3\"\naddress = \"198.51.100.1\"\nport = 443\nprotocol = \"udp\"\n\
         forward = \"l2\"\npolicy = \"zero-rtt\"\nbackend = [{{ address = \"10.0.0.2\", server_id = 1 }}]\n\
         [vip.zero_rtt]\nlayout = [{{ rotation = 0, clear = true }}]\n{keys}\n"
    );
    match Config::parse(&text, Path::new("lb.toml")) {
        Ok(config) => Ok(config.vips[0].zero_rtt.as_ref().and_then(|zero| zero.heavy_share)),
        Err(ConfigError::Faults(faults)) => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn it_is_a_part_of_one_and_optional() {
    assert_eq!(parse(""), Ok(None));
    assert_eq!(parse("heavy_share = 0.35\nheavy_most = 32"), Ok(Some(0.35)));
    assert_eq!(parse("heavy_share = 1"), Ok(Some(1.0)));
    for wrong in ["0", "0.005", "1.5", "nan", "\"half\""] {
        let faults = parse(&format!("heavy_share = {wrong}")).expect_err(wrong);
        assert!(faults.contains("vip.zero_rtt.heavy_share: "), "{faults}");
    }
}
