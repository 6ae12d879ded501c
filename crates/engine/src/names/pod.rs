//! Pods of Kubernetes.

use std::{fmt, sync::Arc};

/// The pod of Kubernetes that a process belongs to, with its container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// The UID by which the kubelet of this host knows the pod. That of a static pod is a hash of its manifest, and the API
    /// server has another one.
    pub uid: Arc<str>,
    /// Its namespace in Kubernetes and its name. `None` where only the UID is known.
    pub name: Option<PodName>,
    /// The name that the pod's manifest gives to the container. `None` of several containers, and where it is not known.
    pub container: Option<Arc<str>>,
}

/// The name of a pod, which is one of its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    /// The namespace in Kubernetes.
    pub namespace: Arc<str>,
    /// The name in it.
    pub name: Arc<str>,
}

impl Pod {
    /// Returns `NAMESPACE/NAME` of the pod alone, or its UID.
    pub fn title(&self) -> String {
        match &self.name {
            Some(PodName { namespace, name }) => format!("{namespace}/{name}"),
            None => self.uid.to_string(),
        }
    }
}

/// Writes `NAMESPACE/NAME/CONTAINER`, or as much of it as is known.
impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title())?;
        self.container.as_ref().map_or(Ok(()), |container| write!(f, "/{container}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_a_name_is_called_by_its_uid() {
        let name = PodName { namespace: "shop".into(), name: "web-0".into() };
        let named = Pod { uid: "8f6a44fc".into(), name: Some(name), container: Some("nginx".into()) };
        assert_eq!((named.to_string().as_str(), named.title().as_str()), ("shop/web-0/nginx", "shop/web-0"));
        assert_eq!(Pod { name: None, container: None, ..named }.to_string(), "8f6a44fc");
    }
}
