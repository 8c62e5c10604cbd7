module falaj/controlplane/crds

go 1.26.0

require (
	github.com/NVIDIA/gpu-operator v1.11.1
	github.com/cert-manager/cert-manager v1.21.2
	github.com/envoyproxy/gateway v1.9.0
	github.com/external-secrets/external-secrets v1.3.2
	github.com/kedacore/keda/v2 v2.20.2
	github.com/kserve/kserve v0.15.0
	github.com/prometheus-operator/prometheus-operator v0.93.1
	github.com/vmware-tanzu/velero v1.18.1
	istio.io/api v1.30.3
	k8s.io/autoscaler/cluster-autoscaler/apis v0.0.0-20240830133931-adfbe7e45277
	sigs.k8s.io/gateway-api v1.6.1
)
