package testbed

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ForeignKinds are the kinds of others that manifests/ has objects of.
var ForeignKinds = []schema.GroupVersionKind{
	{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
}

// ForeignDefinitions are definitions of ForeignKinds that take everything, as YAML. That the objects are right is shown
// in test/monitoring.
func ForeignDefinitions() []byte {
	var all bytes.Buffer
	for _, kind := range ForeignKinds {
		singular := strings.ToLower(kind.Kind)
		fmt.Fprintf(&all, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  names: {kind: %[3]s, plural: %[1]s, singular: %[4]s}
  scope: Namespaced
  versions:
  - name: %[5]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, singular+"s", kind.Group, kind.Kind, singular, kind.Version)
	}
	return all.Bytes()
}
