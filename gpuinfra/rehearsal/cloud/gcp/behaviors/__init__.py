"""What single Google Cloud resource types do beyond keeping their inputs."""
