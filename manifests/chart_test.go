package manifests_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/policy"
)

// The chart's schema knows every part of a policy file, and no other. That the chart renders these manifests is shown
// by test/e2e/install.
func TestChartKnowsThePolicy(t *testing.T) {
	content, err := os.ReadFile("../charts/globalreserve/values.schema.json")
	require.NoError(t, err)
	var schema struct {
		Properties struct {
			Policy struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(content, &schema))
	var known, want []string
	for name := range schema.Properties.Policy.Properties {
		known = append(known, name)
	}
	for field := range reflect.TypeFor[policy.Policy]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			want = append(want, name)
		}
	}
	slices.Sort(known)
	slices.Sort(want)
	assert.Equal(t, want, known)
}
