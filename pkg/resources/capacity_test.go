package resources

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestForCapacity(t *testing.T) {
	const gpu = v1.ResourceName("example.com/gpu")
	table := NewTable()
	cordon := v1.Toleration{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists}
	cases := map[string]struct {
		capacity Capacity
		want     Request
		err      string
	}{
		"amounts are rounded up": {
			capacity: Capacity{Requests: v1.ResourceList{
				v1.ResourceCPU:    resource.MustParse("1n"),
				v1.ResourceMemory: resource.MustParse("1500m"),
			}},
			want: Request{Amounts: []Amount{{CPU, 1}, {Memory, 2}, {Pods, 1}}},
		},
		"nothing but a pod": {
			capacity: Capacity{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("0")}},
			want:     Request{Amounts: []Amount{{Pods, 1}}},
		},
		"what no node has offered yet": {
			capacity: Capacity{Requests: v1.ResourceList{gpu: resource.MustParse("2")}},
			want:     Request{Amounts: []Amount{{Pods, 1}}, Unlisted: []NamedAmount{{gpu, 2}}},
		},
		"ports and tolerations": {
			capacity: Capacity{Ports: []HostPort{{PortKey: PortKey{Port: 80}}}, Tolerations: []v1.Toleration{cordon}},
			want: Request{
				Amounts: []Amount{{Pods, 1}}, Ports: []HostPort{{
					PortKey: PortKey{Port: 80, Protocol: v1.ProtocolTCP},
					IP:      "0.0.0.0",
				}},
				ToleratesUnschedulable: true,
			},
		},
		"negative": {
			capacity: Capacity{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("-1")}},
			err:      "the request of -1 for cpu is negative",
		},
		"too large": {
			capacity: Capacity{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("10E")}},
			err:      "the request of 10E for cpu is too large",
		},
		"misspelled": {
			capacity: Capacity{Requests: v1.ResourceList{"memroy": resource.MustParse("1Gi")}},
			err:      `no node offers a resource named "memroy"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ForCapacity(table, &tc.capacity)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestCapacityOfIsTheReverse(t *testing.T) {
	table := NewTable()
	gpu, _ := table.Offer("example.com/gpu")
	huge, _ := table.Offer("hugepages-2Mi")
	rapid.Check(t, func(t *rapid.T) {
		req := Request{ToleratesUnschedulable: rapid.Bool().Draw(t, "tolerates")}
		req.Amounts = append(req.Amounts, Amount{Pods, 1})
		for _, col := range []Column{CPU, Memory, EphemeralStorage, gpu, huge} {
			if v := rapid.Int64Range(0, math.MaxInt64).Draw(t, "amount"); v > 0 && rapid.Bool().Draw(t, "named") {
				req.Amounts = append(req.Amounts, Amount{col, v})
			}
		}
		sortAmounts(req.Amounts)
		if rapid.Bool().Draw(t, "port") {
			req.Ports = []HostPort{{PortKey: PortKey{Protocol: v1.ProtocolUDP, Port: 53}, IP: "10.0.0.1"}}
		}
		capacity := CapacityOf(table, &req)
		got, err := ForCapacity(table, &capacity)
		require.NoError(t, err)
		require.True(t, got.Equal(&req), "%v became %v", req, got)
		require.Equal(t, req.ToleratesUnschedulable, got.ToleratesUnschedulable)
	})
}
