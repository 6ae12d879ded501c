module validate

go 1.24

require (
	github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring v0.86.0
	k8s.io/api v0.34.1
	k8s.io/apimachinery v0.34.1
)
