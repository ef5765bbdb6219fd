package deletedpods

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/policy"
)

func TestWishOf(t *testing.T) {
	yes, no := &cluster.Annotations{Keep: cluster.KeepYes}, &cluster.Annotations{Keep: cluster.KeepNo}
	unset := &cluster.Annotations{TTL: "1m", Index: "i"}
	tests := map[string]struct {
		pod, deployment *cluster.Annotations
		preempted       bool
		want            *wish // nil: nothing is kept
	}{
		"nothing said":                     {},
		"an index alone":                   {pod: unset},
		"the pod asks":                     {pod: yes, want: &wish{}},
		"the pod refuses":                  {pod: no},
		"the Deployment asks":              {deployment: yes, want: &wish{}},
		"the Deployment refuses":           {deployment: no},
		"both ask":                         {pod: yes, deployment: yes, want: &wish{}},
		"the pod asks, Deployment refuses": {pod: yes, deployment: no, want: &wish{}},
		"the pod refuses, Deployment asks": {pod: no, deployment: yes},
		"the Deployment asks, pod's ttl":   {pod: unset, deployment: yes, want: &wish{ttls: []string{"1m"}}},
		"both have a ttl": {
			pod: unset, deployment: &cluster.Annotations{Keep: cluster.KeepYes, TTL: "2m"},
			want: &wish{ttls: []string{"1m", "2m"}},
		},
		"the pod asks, Deployment's ttl": {
			pod: yes, deployment: &cluster.Annotations{TTL: "2m"}, want: &wish{ttls: []string{"2m"}},
		},
		"in Gödel's words": {
			deployment: &cluster.Annotations{Keep: cluster.KeepYes, Godel: true}, want: &wish{godel: true},
		},
		"deleted for a pod of higher priority": {pod: yes, preempted: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, keep := wishOf(&cluster.Pod{Annotations: tt.pod, Preempted: tt.preempted}, tt.deployment)
			assert.Equal(t, tt.want != nil, keep)
			if tt.want != nil {
				assert.Equal(t, *tt.want, got)
			}
		})
	}
}

func TestParseTTL(t *testing.T) {
	good := map[string]time.Duration{
		"90": 90 * time.Second, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "0.5s": 500 * time.Millisecond,
		"1ns": time.Millisecond, "87600h": v1alpha1.MaxTTL, "315360000": v1alpha1.MaxTTL,
	}
	for text, want := range good {
		got, err := parseTTL(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	bad := map[string]string{
		"": "no duration", "soon": "no duration", "1 h": "no duration", "1.5": "no duration", "90 s": "no duration",
		"0": "out of range", "0s": "out of range", "-1": "out of range", "-90s": "out of range", "87601h": "out of range",
		"315360001": "out of range", "9223372036854775807": "out of range", "-9223372036854775808": "out of range",
		"99999999999999999999": "no duration", strings.Repeat("9", 1000): "...\"",
	}
	for text, want := range bad {
		_, err := parseTTL(text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestChooseTTL(t *testing.T) {
	rules := policy.Default()
	rules.DeletedPods.MaxTTL.Duration = time.Hour
	tests := map[string]struct {
		ttls       []string
		want       time.Duration
		complaints int
	}{
		"none":                       {nil, time.Minute, 0},
		"the first":                  {[]string{"2m", "3m"}, 2 * time.Minute, 0},
		"the first is none":          {[]string{"x", "3m"}, 3 * time.Minute, 1},
		"the first is not allowed":   {[]string{"2h", "3m"}, 3 * time.Minute, 1},
		"none of them can be used":   {[]string{"2h", "-3"}, time.Minute, 2},
		"the one that nobody needed": {[]string{"2m", "x"}, 2 * time.Minute, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := New(Options{Policy: policy.NewStore(rules, time.Minute)})
			got, complaints := k.chooseTTL("s", tt.ttls)
			assert.Equal(t, tt.want, got)
			assert.Len(t, complaints, tt.complaints)
			for _, c := range complaints {
				assert.Contains(t, c, "annotation globalreserve.io/reservation-ttl: ")
			}
		})
	}
}

func TestSuffixed(t *testing.T) {
	pod := func(name string) *cluster.Pod {
		return &cluster.Pod{Ref: ledger.PodRef{Name: name, UID: "6C09a9f1-1111"}}
	}
	assert.Equal(t, "web-0-6c09a9f1", suffixed(pod("web-0")))
	long := suffixed(pod(strings.Repeat("a", 253)))
	assert.Len(t, long, 253)
	assert.Empty(t, validation.IsDNS1123Subdomain(long))
	odd := suffixed(pod(strings.Repeat("a", 243) + "." + strings.Repeat("b", 9)))
	assert.Empty(t, validation.IsDNS1123Subdomain(odd), odd)
}
