package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// wantGPU asks for one GPU by a claim: of a model, or any where that is empty.
func wantGPU(t *testing.T, allocation, model string) *ledger.DeviceRequest {
	spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: "gpu", Count: 1}
	if model != "" {
		spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": model}}
	}
	compiled, err := devices.Compile(nil, spec)
	require.NoError(t, err)
	return &ledger.DeviceRequest{
		Claims:   []ledger.DeviceClaimRef{{Namespace: "ns", Name: allocation, UID: types.UID(allocation)}},
		Requests: []*devices.Request{compiled},
	}
}
