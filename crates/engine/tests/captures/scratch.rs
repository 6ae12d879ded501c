use crate::support::*;
use dwell_engine::{measure::Method, rtt::{Config,Counter}};
#[test]
fn scratch() {
    let p = packets(std::path::Path::new("/work/main/tests/captures/line.pcap.gz"));
    let p: Vec<_> = p.into_iter().filter(|p| p.data.windows(2).any(|w| w == 33371u16.to_be_bytes())).collect();
    println!("quic {}", p.len());
    let mut last = 0;
    for i in 1..60 {
        let r = replay(&only(&[Method::QuicSpin, Method::QuicSpinLoop, Method::QuicHandshake]), &p[..i]);
        let o = r.counters.get(Counter::SpinOrder);
        let d = &p[i-1].data;
        println!("{} {:?} ports {:x?} first {:x} spin {} order {o} {}", p[i-1].time_ns % 1000000000000, &d[12..14], &d[34..38], d[42], d[42]>>5&1, if o != last {"<<<"} else {""});
        last = o;
    }
    let _ = Config::default();
}
