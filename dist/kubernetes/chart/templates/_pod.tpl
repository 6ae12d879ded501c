{{/* What all objects of a part have: (dict "root" $ "part" "rtt") */}}
{{- define "dwell.labels" -}}
app.kubernetes.io/name: dwell
app.kubernetes.io/component: {{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "dwell.scraped" -}}
{{- if not .root.Values.podMonitor.enabled -}}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .port | quote }}
{{- end }}
{{- end }}

{{/* dwell talks to no API server, so its pods get no token. */}}
{{- define "dwell.pod" -}}
serviceAccountName: dwell
automountServiceAccountToken: false
enableServiceLinks: false
# The interfaces and sockets of the node, not of a pod.
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
terminationGracePeriodSeconds: 15
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{/* A container up to its arguments: with the port of its metrics, and probes that read them */}}
{{- define "dwell.container" -}}
image: {{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
env:
  - name: NODE_IP
    valueFrom: {fieldRef: {fieldPath: status.hostIP}}
  - name: NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
ports:
  - {name: metrics, containerPort: {{ .port }}, hostPort: {{ .port }}, protocol: TCP}
{{- with .listens }}
  - {name: agents, containerPort: {{ . }}, hostPort: {{ . }}, protocol: TCP}
{{- end }}
# The kernel verifies the programs before there are metrics.
startupProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /metrics, port: metrics}
  periodSeconds: 30
  timeoutSeconds: 10
resources: {{ toJson .of.resources }}
{{- end }}

{{/* To load BPF programs and attach them to interfaces takes these capabilities, and root, as the capabilities of a pod are
     those of no other user. No program is pinned and no file of the host is read, so nothing of the host is mounted. With names
     of pods (.names), the node's processes are looked into, and the kubelet's folders for logs are mounted. */}}
{{- define "dwell.bpf" -}}
{{- $more := ternary ", DAC_READ_SEARCH, NET_RAW, SYS_PTRACE" "" (default false .names) -}}
securityContext:
  runAsUser: 0
  runAsGroup: 0
  privileged: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    add: [BPF, NET_ADMIN, PERFMON{{ $more }}]
  seccompProfile: {type: RuntimeDefault}
{{- end }}
