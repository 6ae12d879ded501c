//! The metrics of `dwell lb`.

use dwell_metrics::Family;

macro_rules! metrics {
    ($($constant:ident = $kind:ident($name:literal, [$($label:literal),*], $help:literal);)*) => {
        $(
            #[doc = $help]
            pub const $constant: Family = Family::$kind($name, &[$($label),*], $help);
        )*

        /// All metrics of `dwell lb`.
        pub const ALL: &[Family] = &[$($constant),*];
    };
}

metrics! {
    VIP_PACKETS = counter("dwell_lb_vip_packets_total", ["vip"],
        "Clients' packets to a VIP.");
    VIP_BYTES = counter("dwell_lb_vip_bytes_total", ["vip"],
        "Bytes of clients' IP packets to a VIP.");
    VIP_CONNECTIONS = counter("dwell_lb_vip_connections_total", ["vip"],
        "Connections to a VIP that were entered into the connection table.");
    VIP_BACKENDS = gauge("dwell_lb_vip_backends", ["vip"],
        "Backends of a VIP that may be given new connections.");
    VIP_ALL_DOWN = gauge("dwell_lb_vip_all_down", ["vip"],
        "1 while all backends of a VIP fail their checks, so that all are kept.");
    VIP_BLIND = gauge("dwell_lb_vip_blind", ["vip"],
        "1 while policy latency has no estimate of any backend of a VIP although there are connections.");
    VIP_DISRUPTION = gauge("dwell_lb_vip_disruption_ratio", ["vip"],
        "Part of the Maglev table's entries that the last interval changed.");
    BACKEND_PACKETS = counter("dwell_lb_backend_packets_total", ["vip", "backend"],
        "Packets sent to a backend.");
    BACKEND_BYTES = counter("dwell_lb_backend_bytes_total", ["vip", "backend"],
        "Bytes of IP packets sent to a backend, without what is put around them.");
    BACKEND_CONNECTIONS = counter("dwell_lb_backend_connections_total", ["vip", "backend"],
        "Connections placed on a backend.");
    BACKEND_ACTIVE = gauge("dwell_lb_backend_active_connections", ["vip", "backend"],
        "Connections to a backend with a packet within the active time, or with a request that waits.");
    BACKEND_TRACKED = gauge("dwell_lb_backend_tracked_connections", ["vip", "backend"],
        "Connections in the connection table that are placed on a backend, silent ones too.");
    BACKEND_PENDING = gauge("dwell_lb_backend_pending_requests", ["vip", "backend"],
        "Requests of TCP that waited for the first byte of their answers when the last interval ended.");
    BACKEND_OLDEST = gauge("dwell_lb_backend_oldest_pending_seconds", ["vip", "backend"],
        "For how long the oldest of them had waited at least; 0 if there was none.");
    BACKEND_UP = gauge("dwell_lb_backend_up", ["vip", "backend"],
        "1 if the backend passes its checks or has none, 0 if not.");
    BACKEND_WEIGHT = gauge("dwell_lb_backend_weight", ["vip", "backend"],
        "Weight that the policy gives a backend, in the unit of the configuration.");
    BACKEND_SHARE = gauge("dwell_lb_backend_share_ratio", ["vip", "backend"],
        "Part of new connections that goes to a backend.");
    BACKEND_LATENCY = gauge("dwell_lb_backend_latency_seconds", ["vip", "backend"],
        "Mean response latency of a backend in the last interval; absent where it is not known.");
    BACKEND_LATENCY_QUANTILE = gauge("dwell_lb_backend_latency_quantile_seconds", ["vip", "backend", "quantile"],
        "Quantiles of a backend's response latencies in the last interval; absent where only means are known.");
    BACKEND_FRESHNESS = gauge("dwell_lb_backend_freshness_ratio", ["vip", "backend"],
        "Requests of the last interval over connections active at its end.");
    BACKEND_REACHABLE = gauge("dwell_lb_backend_reachable", ["vip", "backend"],
        "1 if there is a route and a neighbour for a backend, by a device that takes packets; 0 if not.");
    BACKEND_LOAD = gauge("dwell_lb_backend_load_seconds", ["vip", "backend"],
        "How long a request waits at a backend, as it reports itself in connection IDs of QUIC.");
    BACKEND_LOAD_AGE = gauge("dwell_lb_backend_load_age_seconds", ["vip", "backend"],
        "How long ago a backend last reported its load.");
    CONNECTION_IDS = counter("dwell_lb_connection_ids_total", ["seen"],
        "Connection IDs and tokens of QUIC by what was seen of them.");
    PACKETS = counter("dwell_lb_packets_total", ["fate"],
        "Packets by what became of them.");
    REFUSED = counter("dwell_lb_refused_packets_total", ["device", "by"],
        "Packets that a device refused, by how they were sent: back where they arrived (tx), or by a redirect.");
    DEVICE_DELIVERS = gauge("dwell_lb_device_delivers", ["device"],
        "0 if a device is known to take no packets from XDP, so that its backends get no connections; else 1.");
    TABLE_EVENTS = counter("dwell_lb_table_events_total", ["event"],
        "Connections that lost their slot, found none, or were not measured for want of room, and epochs of latency that were lost, by name.");
    PRESSURE = gauge("dwell_lb_table_pressure", [],
        "1 if the connection table had no room for all connections in the last interval, so that weights are held.");
    HEARTBEAT = gauge("dwell_lb_heartbeat_timestamp_seconds", [],
        "Unix time when the control loop last renewed the data plane, as of the end of an interval: time() minus it is its age.");
    CHECKS_LATE = counter("dwell_lb_health_checks_late_total", [],
        "Health checks that began late: there are too few threads for backends that are silent.");
    SHARED_STORE_UP = gauge("dwell_lb_shared_store_up", [],
        "1 if the store through which balancers agree answers; 0 if not, so that each keeps the last weights.");
    SHARED_MEMBERS = gauge("dwell_lb_shared_members", [],
        "Balancers that agree on weights, with this one, as far as it knows.");
    SHARED_LEADS = gauge("dwell_lb_shared_leads", [],
        "1 if this balancer decides for all.");
    SHARED_DIFFERING = gauge("dwell_lb_shared_differing", [],
        "VIPs whose configuration is not that of the balancer that leads: there those of all balancers, elsewhere its own.");
    SHARED_REFUSED = counter("dwell_lb_shared_refused_total", [],
        "Values of the store that could not be used, and those that were too large for it.");
    SHARED_SET = gauge("dwell_lb_shared_set_number", [],
        "Number of the set of weights that tables are built from: the same at all balancers.");
    LEAVING = gauge("dwell_lb_leaving_backends", [],
        "Backends that are no longer wanted, and wait for their last connections.");
    LEAVING_TRACKED = gauge("dwell_lb_leaving_tracked_connections", [],
        "Connections in the connection table that are placed on those backends.");
    INTERVAL = gauge("dwell_lb_interval_work_seconds", [],
        "Time that the work of the last interval took.");
    RELOADS = counter("dwell_lb_reloads_total", ["result"],
        "Reloads of the configuration, by whether they were taken.");
}

#[cfg(test)]
mod tests {
    use dwell_metrics::Kind;

    use super::*;

    #[test]
    fn names_follow_the_guidelines() {
        for metric in ALL {
            let is_total = metric.name.ends_with("_total");
            assert_eq!(is_total, metric.kind == Kind::Counter, "{}", metric.name);
            assert!(metric.name.starts_with("dwell_lb_"), "{}", metric.name);
            let same = ALL.iter().filter(|other| other.name == metric.name);
            assert_eq!(same.count(), 1, "{}", metric.name);
        }
    }
}
