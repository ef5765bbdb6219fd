//go:build e2e

package demo

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBlocks(t *testing.T) {
	const text = `Type

    A=1
    kubectl apply -f - <<EOF
    kind: Pod
    EOF
    kubectl get pods \
      -A     # look

and see

    $ kubectl get rsv
    NAME   STATUS
    $ kubectl delete rsv a

but not

    kind: Reservation
    make: believe

1. In a list:

       # first
       curl -d '{
         "a": 1}'

` + "```go\nc, err := client.New()\n```\n\n```\nmake demo\n```\n"
	assert.Equal(t, []block{
		{"a.md", []string{"A=1", "kubectl apply -f - <<EOF\nkind: Pod\nEOF", "kubectl get pods \\\n  -A     # look"}},
		{"a.md", []string{"kubectl get rsv", "kubectl delete rsv a"}},
		{"a.md", []string{"curl -d '{\n  \"a\": 1}'"}},
		{"a.md", []string{"make demo"}},
	}, blocksOf("a.md", text))
}
