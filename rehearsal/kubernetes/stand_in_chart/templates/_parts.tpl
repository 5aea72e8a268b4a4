{{/* Instance types of a list, or of a table of families and sizes, as a flow sequence. */}}
{{- define "types" -}}
{{- $types := list -}}
{{- if kindIs "slice" . -}}{{- $types = . -}}
{{- else -}}{{- range $family, $sizes := . -}}
{{- range $sizes -}}{{- $types = append $types (printf "%s.%s" $family .) -}}{{- end -}}
{{- end -}}{{- end -}}
{{- toJson $types -}}
{{- end -}}

{{/* A DaemonSet on nodes of certain types: name, namespace, image, account, types, tolerations, privileged. */}}
{{- define "daemonset" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
spec:
  selector: {matchLabels: {name: {{ .name }}}}
  template:
    metadata: {labels: {name: {{ .name }}}}
    spec:
      {{- if .account }}
      serviceAccountName: {{ .account }}
      {{- end }}
      {{- if eq .namespace "kube-system" }}
      priorityClassName: system-node-critical
      {{- end }}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: node.kubernetes.io/instance-type, operator: In, values: {{ include "types" .types }}}
      tolerations: {{ toJson .tolerations }}
      containers:
        - name: {{ .name }}
          image: {{ .image }}
          {{- if .privileged }}
          securityContext: {privileged: true}
          {{- else }}
          securityContext: {allowPrivilegeEscalation: false}
          {{- end }}
          {{- if .resources }}
          resources: {{ toJson .resources }}
          {{- end }}
{{- end -}}

{{/* A service account with its own cluster role: name, namespace, rules. */}}
{{- define "account" -}}
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .name }}, namespace: {{ .namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .name }}}
rules: {{ toJson .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ .name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects: [{kind: ServiceAccount, name: {{ .name }}, namespace: {{ .namespace }}}]
{{- end -}}

{{/* Cluster roles for an operator's jobs; the first aggregates the second: prefix, aggregate, resources. */}}
{{- define "jobroles" -}}
{{- $group := "rbac.authorization.kubeflow.org" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .prefix }}-admin
  labels: { {{- $group }}/aggregate-to-kubeflow-admin: "true"}
aggregationRule:
  clusterRoleSelectors: [{matchLabels: { {{- $group }}/aggregate-to-{{ .aggregate }}-admin: "true"}}]
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .prefix }}-edit
  labels:
    {{ $group }}/aggregate-to-kubeflow-edit: "true"
    {{ $group }}/aggregate-to-{{ .aggregate }}-admin: "true"
rules:
  - apiGroups: [kubeflow.org]
    resources: {{ toJson .resources }}
    verbs: [create, delete, get, list, patch, update, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .prefix }}-view
  labels: { {{- $group }}/aggregate-to-kubeflow-view: "true"}
rules:
  - apiGroups: [kubeflow.org]
    resources: {{ toJson .resources }}
    verbs: [get, list, watch]
{{- end -}}
