// Package legacypolicy_test checks scheduler-config/policy-legacy.json with kube-scheduler 1.22's own
// types and decoder. It is a module of its own, because later modules do not have them any more.
package legacypolicy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// extender is a LegacyExtender without its own decoding, which takes any field.
type extender schedulerv1.LegacyExtender

// kube-scheduler reads the file leniently; here a field it does not know is an error.
func TestPolicy(t *testing.T) {
	content, err := os.ReadFile("../../scheduler-config/policy-legacy.json")
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	policy, _, err := decoder.Decode(content, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, &schedulerv1.Policy{
		TypeMeta: metav1.TypeMeta{Kind: "Policy", APIVersion: "v1"},
		Extenders: []schedulerv1.LegacyExtender{{
			URLPrefix:        "http://127.0.0.1:23456",
			FilterVerb:       "filter",
			PreemptVerb:      "preempt",
			BindVerb:         "bind",
			HTTPTimeout:      10 * time.Second,
			NodeCacheCapable: true,
		}},
	}, policy)

	var file struct {
		metav1.TypeMeta
		Extenders []extender
	}
	strict := json.NewDecoder(bytes.NewReader(content))
	strict.DisallowUnknownFields()
	require.NoError(t, strict.Decode(&file))
}
