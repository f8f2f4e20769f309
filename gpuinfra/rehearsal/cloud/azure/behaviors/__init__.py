"""What single Azure resource types do beyond keeping their inputs."""
