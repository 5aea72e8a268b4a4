// Stands in for HyperPod's managed Karpenter, which AWS runs and does not publish: it is Karpenter itself, for
// HyperPod's node class, in a cloud whose instances are only Node objects. They are ready in seconds, not minutes.
//
// INSTANCE_GROUPS names a file with the Nodes that instances of each group can become, as JSON, by the group's name.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"sync/atomic"

	"github.com/awslabs/operatorpkg/status"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// HyperpodNodeClass is what AWS's guide shows of it: the instance groups that a pool's nodes belong to.
type HyperpodNodeClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		InstanceGroups []string `json:"instanceGroups"`
	} `json:"spec"`
	Status struct {
		Conditions []status.Condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

// HyperpodNodeClassList is what the API server lists.
type HyperpodNodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HyperpodNodeClass `json:"items"`
}

func (c *HyperpodNodeClass) DeepCopyObject() runtime.Object         { return copied(c) }
func (l *HyperpodNodeClassList) DeepCopyObject() runtime.Object     { return copied(l) }
func (c *HyperpodNodeClass) GetConditions() []status.Condition      { return c.Status.Conditions }
func (c *HyperpodNodeClass) SetConditions(given []status.Condition) { c.Status.Conditions = given }
func (c *HyperpodNodeClass) StatusConditions() status.ConditionSet {
	return status.NewReadyConditions().For(c)
}

func copied[T any](from *T) *T {
	to := new(T)
	lo.Must0(json.Unmarshal(lo.Must(json.Marshal(from)), to))
	return to
}

// cloud has the Nodes that it can make of each group. Each gets the next one, so that none comes back at once.
type cloud struct {
	client client.Client
	groups map[string][]corev1.Node
	made   *atomic.Uint64
}

func (c cloud) Name() string { return "hyperpod-stand-in" }
func (c cloud) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&HyperpodNodeClass{}}
}
func (c cloud) RepairPolicies() []cloudprovider.RepairPolicy { return nil }
func (c cloud) IsDrifted(context.Context, *v1.NodeClaim) (cloudprovider.DriftReason, error) {
	return "", nil
}

func (c cloud) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	groups, err := c.groupsOf(ctx, pool.Spec.Template.Spec.NodeClassRef)
	return lo.Map(groups, func(nodes []corev1.Node, _ int) *cloudprovider.InstanceType {
		labels := nodes[0].Labels
		in := func(key string, values ...string) *scheduling.Requirement {
			return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
		}
		bought := in(v1.CapacityTypeLabelKey, v1.CapacityTypeOnDemand)
		return &cloudprovider.InstanceType{
			Name: labels[corev1.LabelInstanceTypeStable],
			Requirements: scheduling.NewRequirements(
				in(corev1.LabelInstanceTypeStable, labels[corev1.LabelInstanceTypeStable]),
				in(corev1.LabelArchStable, labels[corev1.LabelArchStable]),
				in(corev1.LabelOSStable, labels[corev1.LabelOSStable]),
				in(corev1.LabelTopologyZone),
				bought,
			),
			Offerings: cloudprovider.Offerings{{Requirements: scheduling.NewRequirements(bought), Price: 1, Available: true}},
			Capacity:  nodes[0].Status.Capacity,
			Overhead:  &cloudprovider.InstanceTypeOverhead{},
		}
	}), err
}

func (c cloud) groupsOf(ctx context.Context, class *v1.NodeClassReference) ([][]corev1.Node, error) {
	found := &HyperpodNodeClass{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: class.Name}, found); err != nil {
		return nil, err
	}
	known := lo.Filter(found.Spec.InstanceGroups, func(name string, _ int) bool { return lo.HasKey(c.groups, name) })
	return lo.Map(known, func(name string, _ int) []corev1.Node { return c.groups[name] }), nil
}

func (c cloud) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	groups, err := c.groupsOf(ctx, claim.Spec.NodeClassRef)
	if err != nil {
		return nil, err
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...)
	for _, nodes := range groups {
		if !wanted.Get(corev1.LabelInstanceTypeStable).Has(nodes[0].Labels[corev1.LabelInstanceTypeStable]) {
			continue
		}
		for range nodes {
			node := nodes[int(c.made.Add(1)-1)%len(nodes)].DeepCopy()
			node.Labels = lo.Assign(claim.Labels, node.Labels, map[string]string{
				v1.CapacityTypeLabelKey: v1.CapacityTypeOnDemand,
			})
			node.Spec.Taints = append(node.Spec.Taints, v1.UnregisteredNoExecuteTaint)
			if err := c.client.Create(ctx, node); err == nil || !errors.IsAlreadyExists(err) {
				return instance(*node), err
			}
		}
	}
	return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("no instance is left"))
}

// Delete has nothing to end: Karpenter deletes the Node.
func (c cloud) Delete(context.Context, *v1.NodeClaim) error {
	return cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("the instance is terminated"))
}

func (c cloud) Get(ctx context.Context, id string) (*v1.NodeClaim, error) {
	node := &corev1.Node{}
	err := c.client.Get(ctx, client.ObjectKey{Name: path.Base(id)}, node)
	if errors.IsNotFound(err) || err == nil && node.DeletionTimestamp != nil {
		return nil, cloudprovider.NewNodeClaimNotFoundError(fmt.Errorf("there is no instance %s", id))
	}
	return instance(*node), err
}

func (c cloud) List(ctx context.Context) ([]*v1.NodeClaim, error) {
	nodes := &corev1.NodeList{}
	err := c.client.List(ctx, nodes, client.HasLabels{v1.NodePoolLabelKey})
	return lo.Map(nodes.Items, func(node corev1.Node, _ int) *v1.NodeClaim { return instance(node) }), err
}

func instance(node corev1.Node) *v1.NodeClaim {
	return &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, CreationTimestamp: node.CreationTimestamp},
		Status: v1.NodeClaimStatus{
			NodeName:    node.Name,
			ProviderID:  node.Spec.ProviderID,
			Capacity:    node.Status.Capacity,
			Allocatable: node.Status.Allocatable,
		},
	}
}

func main() {
	version := schema.GroupVersion{Group: "karpenter.sagemaker.amazonaws.com", Version: "v1"}
	scheme.Scheme.AddKnownTypes(version, &HyperpodNodeClass{}, &HyperpodNodeClassList{})
	metav1.AddToGroupVersion(scheme.Scheme, version)
	groups := map[string][]corev1.Node{}
	lo.Must0(json.Unmarshal(lo.Must(os.ReadFile(os.Getenv("INSTANCE_GROUPS"))), &groups))

	ctx, op := operator.NewOperator()
	made := cloud{client: op.GetClient(), groups: groups, made: &atomic.Uint64{}}
	cluster := state.NewCluster(op.Clock, op.GetClient(), made)
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, made, made, cluster, op.InstanceTypeStore,
	)...).Start(ctx)
}
