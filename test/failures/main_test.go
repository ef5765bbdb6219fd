package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	file := strings.NewReader(`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN TestA\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"fine\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: is 1, not 2\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"        time=\"2026-01-01\" level=info msg=bind\n"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}
`)
	var got strings.Builder
	require.NoError(t, report(&got, file))
	require.Equal(t, "--- p TestA\n    a_test.go:7: is 1, not 2\n--- p \n", got.String())
	require.Error(t, report(&got, strings.NewReader("no JSON")))
}
