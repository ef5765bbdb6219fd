//go:build e2e

package apianswers

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

var update = flag.Bool("update", false, "write the answers of kube-apiserver into testdata")

// A real kube-apiserver answers what is recorded.
func TestAnswers(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	restart := func(ctx context.Context) error {
		return errors.Join(cp.StopPart(controlplane.APIServer), cp.StartPart(ctx, controlplane.APIServer))
	}
	server := Server{Config: cp.AdminRESTConfig(), Compact: cp.CompactEtcd, Restart: restart}
	got, err := Play(t.Context(), server, Recorded)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("testdata/answers.txt", []byte(got), 0o600))
		return
	}
	require.Equal(t, Recorded, got)
}
